"""The recipes train under torchtitan's own Trainer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from meshlang.runtime import device
device.prepare("cpu")
from meshlang_models.llama import tiny
from torchtitan.components.metrics import MetricsProcessor

losses = []
log = MetricsProcessor.log
def record(self, step, loss, *rest, **options):
    losses.append(loss)
    log(self, step, loss, *rest, **options)
MetricsProcessor.log = record

config = tiny()
config.dump_folder = sys.argv[1]
config.training.steps = 3
config.training.seq_len = 64
config.metrics.log_freq = 1
trainer = device.config_for_cpu(config).build()
trainer.train()
trainer.close()
print(json.dumps(losses))
"""


@pytest.mark.gloo
def test_tiny_trains_under_the_real_trainer(tmp_path: Path) -> None:
    """Three steps of the unchanged torchtitan Trainer on one rank lower the loss each time."""
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=os.environ | rank,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    losses = json.loads(done.stdout.splitlines()[-1])
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 5.5
