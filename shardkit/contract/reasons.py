"""The stable codes that say why a record was rejected or warned about.

Programs match on these codes, so one is never renamed or given a second meaning. The sentence that
goes with each occurrence is made where the fault is found.
"""

from enum import StrEnum


class Reason(StrEnum):
    """Why a record was rejected. Each value is the code that stands in the report."""

    # the record as a whole
    BAD_ID = "bad-id"  # empty, not UTF-8, or holds a NUL
    DUPLICATE_ID = "duplicate-id"  # an earlier record has this id
    MISSING_FIELD = "missing-field"  # the record lacks a field of the contract
    BAD_ROW = "bad-row"  # a table row that cannot be split into its columns
    INCOMPLETE_SOURCE = (
        "incomplete-source"  # damage that hides an unknown number of records (a tar cut short)
    )
    DELETED = "deleted"  # stored once, and deleted since; only ever with the index, not in a report
    # getting at the bytes
    MISSING_FILE = "missing-file"
    UNREADABLE = "unreadable"  # the system refused to read it
    OUTSIDE_SOURCE = "outside-source"  # a path or link that leaves the source
    NOT_A_FILE = "not-a-file"  # folder, FIFO, device or socket
    # images: what the bytes are
    EMPTY = "empty"
    NOT_AN_IMAGE = "not-an-image"
    BAD_HEADER = "bad-header"  # the format is known, its header is broken
    FORMAT_NOT_ALLOWED = "format-not-allowed"
    UNSUPPORTED = "unsupported"  # a real image that no decoder here reads (12-bit JPEG, HEIF, float samples)
    TRUNCATED = "truncated"
    CHECKSUM = "checksum"  # the format's own checksum fails
    INCOMPLETE_SCANS = "incomplete-scans"  # a progressive JPEG with scans missing
    DECODE_ERROR = "decode-error"
    DECODER_WARNING = "decoder-warning"  # the decoder recovered from damage
    # images: policies
    GRAYSCALE = "grayscale"
    COLOUR = "colour"  # colour where the contract wants gray
    ALPHA = "alpha"
    CMYK = "cmyk"
    COLOUR_SPACE = "colour-space"  # Lab, HSV: no policy converts it
    DEPTH16 = "depth16"
    PALETTE = "palette"
    ANIMATED = "animated"
    ORIENTATION = "orientation"
    TOO_MANY_PIXELS = "too-many-pixels"
    WRONG_SIZE = "wrong-size"
    # labels and plain values
    LABEL_UNKNOWN = "label-unknown"
    LABEL_RANGE = "label-range"
    LABEL_TYPE = "label-type"
    WRONG_TYPE = "wrong-type"
    OUT_OF_RANGE = "out-of-range"
    NOT_FINITE = "not-finite"
    WRONG_SHAPE = "wrong-shape"
    TOO_SHORT = "too-short"
    TOO_LONG = "too-long"
    BAD_ENCODING = "bad-encoding"
    BAD_JSON = "bad-json"


class Warned(StrEnum):
    """What was noticed about an accepted record; counted in the report."""

    WRONG_EXTENSION = "wrong-extension"  # the file name promises another format than the bytes hold
    RECOVERED = "recovered"  # the decoder recovered from something harmless
    TRAILING_BYTES = "trailing-bytes"  # data after the end of the image
    EMBEDDED_IMAGES = "embedded-images"  # further pictures (a preview, a gain map) behind the first
    BAD_METADATA = "bad-metadata"  # EXIF or ICC that cannot be read; pixels are fine
