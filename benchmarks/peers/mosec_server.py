"""A mosec server at its best settings: python mosec_server.py PORT MODEL_DIRECTORY

The model is a deployable directory of lepa, so that both serve the same function. Batches of up to 32, for which mosec
waits 2 ms: the settings that served it best in a sweep.
"""

import sys

sys.argv, DIRECTORY = (
    [sys.argv[0], "--port", sys.argv[1], "--address", "127.0.0.1", "--log-level", "error"],
    sys.argv[2],
)

from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from mosec import Server, Worker  # noqa: E402

from lepa.serving.model_directory import load  # noqa: E402

MAX_BATCH = 32
MAX_WAIT_MS = 2


class Model(Worker):
    """Answers {"input": [numbers]}."""

    def __init__(self):
        super().__init__()
        self.predict = load(Path(DIRECTORY))

    def forward(self, data):
        return [{"output": float(output)} for output in self.predict(np.array([one["input"] for one in data]))]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1, max_batch_size=MAX_BATCH, max_wait_time=MAX_WAIT_MS)
    server.run()
