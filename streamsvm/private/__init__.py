"""Names that other libraries keep to themselves, one module a library; tests/test_private.py says when one is gone.

Only from here does the package import them: a release that renames one is mended in one place.
"""
