"""The points of the CIS Kubernetes Benchmark, for scripts/cis."""
