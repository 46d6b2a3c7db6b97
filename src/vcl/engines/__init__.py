"""How a model is evaluated under a belief: the general way for any module, and faster ways for chains of layers."""
