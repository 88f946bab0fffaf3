"""Files of other tools: their configs as answers of this store, and our measurements in their formats.

One module a format reads and writes it. Nothing in a file is evaluated, and no path is made from it unchecked.
"""
