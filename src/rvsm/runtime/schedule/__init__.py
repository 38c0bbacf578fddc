"""How a plan is computed on this machine: layout, taps, tiles, packed weights, choice of kernels; a list of steps."""
