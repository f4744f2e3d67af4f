"""Two-digit additions with workings: the task, a small policy that ships with the package, a stand-in verifier."""
