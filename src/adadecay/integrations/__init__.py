"""Callbacks that watch θ, and a registry entry; each imports its own trainer."""
