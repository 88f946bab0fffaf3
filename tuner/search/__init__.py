"""The search loop, its samplers, the interleaved comparison and the verdict."""
