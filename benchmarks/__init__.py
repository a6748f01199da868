"""Side-by-side measurements, run by hand with `make bench`; nothing is asserted on a clock.

Machines are shared and noisy: what is printed are ratios of things measured in one run, in turns.
"""
