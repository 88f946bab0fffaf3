"""Searches on many machines, by engines that people already operate: SLURM, Ray, Dask, Kubernetes."""
