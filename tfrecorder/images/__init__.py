"""Images: bytes in, checked bytes with their true shape out.  `check.check_image` is the way in."""
