"""What an encoded image is and what it shows: sniffing, header facts, full decoding, policies."""
