"""Private names of other libraries, one module a library; tests/test_private.py reports when one is gone. The package
imports them only from here: if a release renames one, there is one place to fix."""
