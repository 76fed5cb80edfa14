"""The same call in other contexts: modes, transforms, tracers, devices, an operator's promises."""
