"""Asks a query frontend through Triton's own HTTP client. PYTHONPATH leads to it.

    python tritonclient_driver.py HOST:PORT

Prints one JSON object: what each step answered.
"""

import json
import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException


def tensor(values, datatype, binary):
    made = triton.InferInput("input", list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def run(address):
    client = triton.InferenceServerClient(address)
    told = {"live": client.is_server_live(), "ready": client.is_server_ready()}
    told["model_ready"] = client.is_model_ready("sum")
    told["server"] = client.get_server_metadata()["name"]
    told["model"] = client.get_model_metadata("sum")
    rows = np.array([[1.0, 2.0], [3.0, 4.5]])
    for binary in (True, False):
        found = client.infer("sum", [tensor(rows, "FP64", binary)], request_id="7")
        told[f"sum_{binary}"] = found.as_numpy("output").tolist()
    asked = [triton.InferRequestedOutput("output", binary_data=True)]
    told["asked"] = client.infer("sum", [tensor(rows, "FP64", True)], outputs=asked).as_numpy("output").tolist()
    words = np.array([b"cat", "tr\u00e9s".encode()], dtype=np.object_)
    found = client.infer("shout", [tensor(words, "BYTES", True)])
    told["shout"] = [word.decode() if isinstance(word, bytes) else word for word in found.as_numpy("output").tolist()]
    try:
        client.infer("nobody", [tensor(rows, "FP64", True)])
    except InferenceServerException as error:
        told["nobody"] = error.message()
    return told


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
