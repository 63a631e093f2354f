"""torchtitan is imported here and nowhere else: launch, trainer, device, attention."""
