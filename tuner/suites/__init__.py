"""Lists of problems: suites that ship, suites in files, and the GEMMs of a language model."""
