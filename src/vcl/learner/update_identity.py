"""Which update this is, so that one that was interrupted is continued and no other."""

from __future__ import annotations

import json
from hashlib import sha256

from safetensors.torch import save
from torch import nn

from vcl.learner.checkpoint import to_bytes
from vcl.learner.draft import Draft
from vcl.learner.knowledge import Knowledge
from vcl.learner.settings import Settings
from vcl.learner.way import Net


def identity_of(net: Net, known: Knowledge | None, settings: Settings, draft: Draft) -> str:
    """A checksum of the network, of the learner before the update, and of the update's data."""
    module = net if isinstance(net, nn.Module) else nn.Module()
    values = {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}
    network = [repr(module), sha256(save(values)).hexdigest()]
    before = "" if known is None else sha256(to_bytes(known.state)).hexdigest()
    noise = "" if known is None else repr(known.noise)
    place = [draft.name, draft.head, draft.digest, draft.forget]
    about = [network, settings.described(), before, noise, *place]
    return sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
