"""Make a folder of real images out of what scikit-learn ships, with the faults that real folders have.

usage: demo_images.py FOLDER [PHOTOS]     PHOTOS crops of each of two photos (default 1000), and 1,797 digits

Twelve classes: crops of two photos as JPEG, and handwritten digits as PNG. Some photos are gray, some CMYK, some
are stored turned, with an EXIF tag that turns them back; a few files are damaged, and some are what file managers
leave behind.
"""

import io
import random
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image

SIDE = 64  # pixels; every image is SIDE x SIDE
TURNED = 6  # EXIF orientation: shown turned by 90 degrees clockwise
ORIENTATION_TAG = 0x0112


def main(folder: Path, photos: int) -> None:
    """Write all images, then the damaged ones."""
    choose = random.Random(0)
    for name in ("china", "flower"):
        photo = Image.fromarray(load_sample_image(f"{name}.jpg"))
        for number in range(photos):
            path = folder / name / f"{number:04d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(crop(photo, choose), choose.random()))
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / f"digit-{label}" / f"{number:04d}.png"
        path.parent.mkdir(exist_ok=True)
        image = Image.fromarray((pixels * 255 / 16).astype(np.uint8))  # 0 to 16 in the original
        image.resize((SIDE, SIDE), Image.Resampling.NEAREST).save(path)
    damage(folder)
    print(f"{sum(path.is_file() for path in folder.rglob('*'))} files in {folder}")


def crop(photo: Image.Image, choose: random.Random) -> Image.Image:
    """Return a square cut out of the photo at random and scaled to SIDE."""
    size = choose.randint(SIDE, 2 * SIDE)
    left, top = choose.randint(0, photo.width - size), choose.randint(0, photo.height - size)
    return photo.crop((left, top, left + size, top + size)).resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def encode(image: Image.Image, draw: float) -> bytes:
    """Return the image as JPEG; `draw` in [0, 1) decides which few are gray, CMYK or turned."""
    exif = Image.Exif()
    if draw < 0.03:
        image = image.convert("L")
    elif draw < 0.05:
        image = image.convert("CMYK")
    elif draw < 0.10:
        image = image.transpose(Image.Transpose.ROTATE_90)
        exif[ORIENTATION_TAG] = TURNED
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90, exif=exif)
    return out.getvalue()


def damage(folder: Path) -> None:
    """Add files that are cut short, empty, altered or no images at all, and file managers' leavings."""
    whole = (folder / "flower" / "0000.jpg").read_bytes()
    digit = bytearray((folder / "digit-0" / "0000.png").read_bytes())
    digit[60] ^= 1  # within the compressed pixels: only the PNG's own checksum tells
    (folder / "flower" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "flower" / "empty.jpg").write_bytes(b"")
    (folder / "flower" / "missing-page.jpg").write_text("<html><body>404 Not Found</body></html>")
    (folder / "digit-0" / "altered.png").write_bytes(bytes(digit))
    (folder / "china" / "really-a-png.jpg").write_bytes((folder / "digit-0" / "0000.png").read_bytes())
    (folder / "china" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (folder / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
