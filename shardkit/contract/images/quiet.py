"""Decoding that never fails for a mere Python warning, for use in threads.

``warnings.catch_warnings`` swaps process-wide state, so reading uses it only where the user's own filters
have turned a warning of Pillow's into an error, and then one thread at a time.
"""

import threading
import warnings

from shardkit.contract.images.facts import Facts, Picture
from shardkit.contract.images.pixels import pixels

_LOCK = threading.Lock()


def quiet_pixels(data: bytes, facts: Facts) -> Picture:
    """Decode an image that was let in at ingest, whatever the warning filters are.

    Raises:
        Violation: It cannot be decoded.
    """
    try:
        return pixels(data, facts)
    except Warning:
        with _LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pixels(data, facts)
