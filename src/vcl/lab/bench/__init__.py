"""How fast vcl is on this machine, beside a floor, a deterministic network and other libraries, all in one call."""
