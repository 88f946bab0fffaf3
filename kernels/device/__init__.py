"""Code that runs on the card and is shared: by the variants of an op, or by several ops."""
