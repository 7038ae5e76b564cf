"""The image field: what every image must be, judged by full decoding and decoded the same when read.

How formats are told apart, examined and decoded is in ``images/``. Payloads: docs/format.md, "Payloads".
"""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from shardkit.contract.field import Checked, Field, FileContent, Layout, Payload, Violation
from shardkit.contract.image_keys import LARGEST_JPEG_SIDE, check_image_keys, is_within, stored_size_of
from shardkit.contract.images.examination import DECODER_WARNINGS, examine
from shardkit.contract.images.facts import Facts, Picture
from shardkit.contract.images.jpeg import JpegFacts
from shardkit.contract.images.jpeg_plain import is_plain
from shardkit.contract.images.pixels import decode_turbo, require_decodable, require_pixels
from shardkit.contract.images.policies import CHANNELS, Policies, conversions, deliver, delivered_size, refuse
from shardkit.contract.images.quiet import quiet_pixels
from shardkit.contract.images.resizing import Samples, Size, resize, shrink
from shardkit.contract.images.seen_headers import inspect_again
from shardkit.contract.images.sniff import FORMATS, promised_format
from shardkit.contract.images.storage import jpeg_bytes, png_bytes
from shardkit.contract.images.stored import Room, StoredImage
from shardkit.contract.images.values import encoded_or_picture, picture_of_array
from shardkit.contract.keys import wrong_key
from shardkit.contract.reasons import Reason, Warned
from shardkit.errors import FormatError

_DEFAULT_QUALITY = 90
_DEFAULT_SUBSAMPLING = "420"
_DEFAULT_FIT = "crop"


@dataclass(frozen=True)
class ImageField(Field):
    """An image. Delivered as ``uint8[H, W, C]``, C being 3 for mode RGB, 1 for L, 4 for RGBA.

    All coded data of an image is decoded before it is let in. Sizes are ``[H, W]`` in pixels and hold for the
    picture as delivered: oriented, and shrunk by `max_side`; but for what comes in where `resize` makes all alike.

    Attributes:
        mode: Channels delivered: ``RGB``, ``L`` or ``RGBA``. An image without alpha gets an opaque one for
            RGBA. Colour is never turned into gray.
        grayscale: ``reject`` gray and bilevel images where `mode` is in colour, or ``convert``: repeat the
            channel.
        alpha: Where `mode` has no alpha: ``reject`` images with transparency, ``drop`` it, or ``composite``
            over white.
        cmyk: ``reject`` CMYK images, or ``convert``: R = (255 - C) * (255 - K) / 255 and so on; no colour
            profile is used.
        depth16: ``reject`` images of 9 to 16 bits a sample, or ``convert``: keep the most significant 8 of
            the true depth (``sample >> (depth - 8)``). AVIF is brought to 8 bits by its decoder, on the way
            from YUV. PNM with a maxval that is not a power of two less one is scaled. Float, signed and
            32-bit samples are always rejected.
        palette: ``convert``: expand palettes, which loses nothing, or ``reject``.
        animated: ``reject`` what has more than one frame or page, or keep the ``first``.
        orientation: ``apply`` the orientation in EXIF or XMP, ``ignore`` it, or ``reject`` images that are
            not upright.
        formats: Formats let in, told by content, never by file name.
        warnings: ``accept`` (and count) what the decoder recovered from, or ``reject`` it. Damage to coded
            pixels is never accepted.
        min_size: Least height and width.
        max_size: Greatest height and width.
        size: Exact height and width.
        max_pixels: Images of more are refused from the header, before they are decoded.
        store: ``original``: bytes untouched (arrays and Pillow images as lossless PNG); ``jpeg``: what the
            policies made of it, re-encoded; ``raw``: its samples, ``uint8[H, W, C]``, which needs `size` or
            `resize`.
        resize: With ``store = "jpeg"`` or ``"raw"``: make each picture one of exactly this height and width.
        fit: With `resize`: ``crop`` (default): scale until it covers the size, shape kept, and keep the middle;
            ``stretch``: scale each side by itself.
        max_side: With ``store = "jpeg"``: longer side at most, in pixels; larger pictures are shrunk.
        quality: With ``store = "jpeg"``: 1 to 100, by default 90.
        subsampling: With ``store = "jpeg"``: ``444``, ``422`` or ``420`` (default).

    Raises:
        ContractError: A key has a value that is not allowed; names the key and what is.
    """

    kind: ClassVar[str] = "image"
    takes_file: ClassVar[bool] = True

    mode: str = "RGB"
    grayscale: str = "reject"
    alpha: str = "reject"
    cmyk: str = "reject"
    depth16: str = "reject"
    palette: str = "convert"
    animated: str = "reject"
    orientation: str = "apply"
    formats: tuple[str, ...] = FORMATS
    warnings: str = "accept"
    min_size: Size = (1, 1)
    max_size: Size = (8192, 8192)
    size: Size | None = None
    max_pixels: int = 89_478_485
    store: str = "original"
    resize: Size | None = None
    fit: str | None = None
    max_side: int | None = None
    quality: int | None = None
    subsampling: str | None = None

    def __post_init__(self) -> None:
        given = {key.name: getattr(self, key.name) for key in fields(self)}
        for key, value in check_image_keys(given).items():
            object.__setattr__(self, key, value)
        if self.default is not None:
            raise wrong_key("default", self.default, "an image field takes none")

    @property
    def channels(self) -> int:
        """Channels of the delivered picture: 1, 3 or 4."""
        return CHANNELS[self.mode]

    @property
    def stored_size(self) -> Size | None:
        """Height and width that every stored picture has once it is upright, or None where they vary."""
        return stored_size_of(self.size, self.resize)

    @property
    def layout(self) -> Layout:
        """Fixed ``uint8[H, W, C]`` where stored raw, otherwise of varying length."""
        if self.store == "raw" and self.stored_size is not None:
            return Layout(np.dtype(np.uint8), (*self.stored_size, self.channels))
        return Layout()

    @cached_property
    def policies(self) -> Policies:
        """The keys that speak about pixels."""
        return Policies(**{key.name: getattr(self, key.name) for key in fields(Policies)})

    def check(self, value: Any) -> Checked:  # Any: raw input may be anything, which is what is being judged
        """Judge one image by decoding all of its coded data.

        Args:
            value: Encoded bytes, or a :class:`FileContent`; pixels as ``uint8 [H, W]``, ``[H, W, C]`` or
                ``[C, H, W]`` in an array or anything with ``__array__`` (a torch tensor), C being 1, 3 or 4;
                or a Pillow image.

        Raises:
            Violation: It does not fit: the first reason that holds, damage before policy.
        """
        if isinstance(value, Image.Image):
            found = encoded_or_picture(value)
            return self._check_picture(found) if isinstance(found, Picture) else self._check_bytes(found)
        if isinstance(value, FileContent):
            return self._check_bytes(value.data, promised_format(value.name))
        if isinstance(value, bytes | bytearray | memoryview):
            return self._check_bytes(bytes(value))
        if hasattr(value, "__array__"):
            return self._check_picture(picture_of_array(value), is_lossless_png=True)
        raise Violation(
            Reason.WRONG_TYPE,
            f"{type(value).__name__} is no image: give encoded bytes, a uint8 array or a Pillow image",
        )

    def decode(self, payload: Payload) -> Samples:
        """Return the picture in a stored payload: C-contiguous ``uint8[H, W, C]``.

        It is writable and owned by the caller. Safe in threads; the GIL is released while a JPEG is decoded.

        Raises:
            FormatError: The payload is damaged, or the contract would never have let it in. Format and pixels
                are judged by its header, before a decoder sees it.
        """
        samples = self.open(payload).decode()
        return samples.copy() if self.store == "raw" or not samples.flags.writeable else samples

    def open(self, payload: Payload) -> StoredImage:
        """Return the picture in a stored payload before it is decoded, where its header tells its size.

        Raises:
            FormatError: As for `decode`, which the picture may raise as well when it is decoded.
        """
        if self.store == "raw":
            return self._open_raw(payload)
        try:
            return self._open_encoded(payload, self._inspect_stored(payload))
        except Violation as violation:
            raise _unfit(violation) from violation

    def plain_jpeg_size(self, payload: Payload) -> Size | None:
        """Return height and width of a payload that is a plain JPEG; None of any other.

        Of a plain one any JPEG decoder makes the picture that `open` gives, within rounding: no policy of the contract
        has a part in it.

        Raises:
            FormatError: As for `open`.
        """
        if self.store == "raw":
            return None
        data = bytes(payload)
        try:
            facts = self._inspect_stored(data)
            if (
                not isinstance(facts, JpegFacts)
                or not self._direct_colorspace(facts)
                or not is_plain(data, facts)
            ):
                return None
            self._require_stored_size(facts.height, facts.width)
        except Violation as violation:
            raise _unfit(violation) from violation
        return facts.height, facts.width

    @cached_property
    def _stored_formats(self) -> frozenset[str]:
        """Formats that payloads have: those let in, and those that :meth:`check` writes itself."""
        return frozenset({"jpeg"} if self.store == "jpeg" else {*self.formats, "png"})

    def _inspect_stored(self, payload: Payload) -> Facts:
        """Return the header facts of a payload that may be decoded: the disk is not trusted."""
        facts = inspect_again(payload)
        if facts.format not in self._stored_formats:
            expected = ", ".join(sorted(self._stored_formats))
            raise Violation(
                Reason.FORMAT_NOT_ALLOWED, f"a {facts.format} image; the contract allows {expected} here"
            )
        require_decodable(len(payload), facts, self.max_pixels)
        return facts

    def _open_encoded(self, payload: Payload, facts: Facts) -> StoredImage:
        colorspace = self._direct_colorspace(facts)
        if colorspace is None or not isinstance(facts, JpegFacts):
            whole = self._decode_by_policies(bytes(payload), facts)
            return StoredImage((whole.shape[0], whole.shape[1]), lambda *_: whole)
        self._require_stored_size(facts.height, facts.width)

        def decode(least: Size | None, room: Room | None) -> Samples:
            try:
                return decode_turbo(payload, facts, colorspace, least, room)
            except ValueError:  # what simplejpeg refuses, Pillow may serve
                return self._decode_by_policies(bytes(payload), facts)

        return StoredImage((facts.height, facts.width), decode)

    def _decode_by_policies(self, data: bytes, facts: Facts) -> Samples:
        try:
            samples = deliver(self.policies, quiet_pixels(data, facts))
            self._require_stored_size(samples.shape[0], samples.shape[1])
        except Violation as violation:
            raise _unfit(violation) from violation
        return samples

    def _open_raw(self, payload: Payload) -> StoredImage:
        layout = self.layout
        if len(payload) != layout.nbytes:
            raise FormatError(f"a raw image has {len(payload)} bytes, expected {layout.nbytes}")
        samples = np.frombuffer(payload, np.uint8).reshape(layout.shape)
        return StoredImage((samples.shape[0], samples.shape[1]), lambda *_: samples)

    def _direct_colorspace(self, facts: Facts) -> str | None:
        """Return the simplejpeg colorspace that delivers in one step, or None."""
        if not isinstance(facts, JpegFacts) or not facts.is_turbo:
            return None
        if facts.orientation != 1 and self.orientation != "ignore":
            return None
        components = len(facts.components)
        if self.mode == "RGB":
            return "RGB" if components in (1, 3) else None
        return "GRAY" if self.mode == "L" and components == 1 else None

    def _check_bytes(self, data: bytes, promised: str | None = None) -> Checked:
        examined = examine(data, self.formats, self.max_pixels, needs_pixels=self.store != "original")
        depth = examined.facts.depth
        refuse(self.policies, examined.picture, depth)
        noticed = examined.warnings
        if promised not in (None, examined.facts.format):
            noticed = (Warned.WRONG_EXTENSION, *noticed)
        remarks = [warned for warned in noticed if warned in DECODER_WARNINGS]
        if remarks and self.warnings == "reject":
            raise Violation(
                Reason.DECODER_WARNING,
                f'the decoder remarked: {", ".join(remarks)}; warnings = "accept" lets it in',
            )
        return self._checked(examined.picture, depth, noticed, data)

    def _check_picture(self, picture: Picture, *, is_lossless_png: bool = False) -> Checked:
        """Judge pixels. A PNG is the original: of them, or of the result where PNG cannot hold them."""
        height, width = picture.samples.shape[:2]
        require_pixels(width, height, self.max_pixels)
        refuse(self.policies, picture, 8)
        if self.store != "original":
            return self._checked(picture, 8, (), b"")
        samples = picture.samples if is_lossless_png else deliver(self.policies, picture)
        return self._checked(picture, 8, (), png_bytes(samples))

    def _checked(self, picture: Picture, depth: int, noticed: tuple[Warned, ...], original: bytes) -> Checked:
        converted = conversions(self.policies, picture, depth)
        height, width = delivered_size(self.policies, picture)
        payload = original
        if self.store == "original":
            self._require_size(height, width)
        else:
            samples = self._sized(deliver(self.policies, picture))
            payload = samples.tobytes() if self.store == "raw" else self._jpeg(samples)
            if samples.shape[:2] != (height, width):
                converted = (*converted, "resize" if self.resize is not None else "max_side")
        return Checked(payload, picture.label, converted, tuple(map(str, noticed)))

    def _sized(self, samples: Samples) -> Samples:
        """Return a picture in the size in which it is stored.

        Raises:
            Violation: ``wrong-size``.
        """
        if self.max_side is not None:
            samples = shrink(samples, self.max_side)
        self._require_size(samples.shape[0], samples.shape[1])
        return samples if self.resize is None else resize(samples, self.resize, self.fit or _DEFAULT_FIT)

    def _jpeg(self, samples: Samples) -> bytes:
        if max(samples.shape) > LARGEST_JPEG_SIDE:
            raise Violation(
                Reason.WRONG_SIZE,
                f"a side of {max(samples.shape)} pixels; JPEG holds {LARGEST_JPEG_SIDE} at most",
            )
        quality = _DEFAULT_QUALITY if self.quality is None else self.quality
        return jpeg_bytes(samples, quality, self.subsampling or _DEFAULT_SUBSAMPLING)

    def _require_size(self, height: int, width: int) -> None:
        if self.size is not None and (height, width) != self.size:
            raise Violation(
                Reason.WRONG_SIZE, f"[H, W] is [{height}, {width}], size asks for {list(self.size)}"
            )
        if not is_within((height, width), self.min_size, self.max_size):
            raise Violation(
                Reason.WRONG_SIZE,
                f"[H, W] is [{height}, {width}], allowed is {list(self.min_size)} to {list(self.max_size)}",
            )

    def _require_stored_size(self, height: int, width: int) -> None:
        if self.resize is None:
            self._require_size(height, width)
        elif (height, width) != self.resize:
            raise Violation(
                Reason.WRONG_SIZE, f"[H, W] is [{height}, {width}], resize makes {list(self.resize)}"
            )


def _unfit(violation: Violation) -> FormatError:
    return FormatError(f"a stored image cannot be decoded as its contract asks: {violation}")
