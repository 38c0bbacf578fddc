"""Schedules, which define how a plan is computed on this machine: layout, taps, tiles, packed weights, steps."""
