"""Tasks on many machines, placed by schedulers that people already operate: SLURM, Ray, Dask, Kubernetes."""
