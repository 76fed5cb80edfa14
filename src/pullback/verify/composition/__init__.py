"""The same call in other company: modes, transforms, tracers, devices, an operator's promises."""
