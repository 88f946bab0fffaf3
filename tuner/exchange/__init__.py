"""Files of others: what their configs mean here, and answers of ours written as they have them.

A reader of a format turns a file into claims (`claim.Claim`), `adopt` into answers of this store. Nothing that a file
holds is evaluated, and no path is made from it.
"""
