"""Every exception the tests make, with its reason. A gap that closes fails the run."""

# Test (without its file) -> why it fails now. Expected to fail, strictly.
GAPS: dict[str, str] = {}

# Skips outside this file: (file, reason).
SKIPS = {"test_rows_b.py": "halves for which the CPU has no kernel to compare with"}
