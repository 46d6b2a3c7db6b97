"""Times vcl on this machine against lower bounds, a deterministic network and other libraries, in one call."""
