"""The profile of one config: what limits it, and the knob to change.

The compiled code is evaluated on the host for a few programs, which gives the address of each lane of each memory
instruction without a GPU or counters. Proton and Nsight Compute add measurements if the driver permits them.
"""
