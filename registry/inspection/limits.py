"""Fixed limits of uploads; the sizes that operators set come with each order."""

#: of a whole ONNX file: protobuf cannot parse more
MAX_MODEL_BYTES = 2 * 2**30 - 1
#: over the main graph, its subgraphs and functions together
MAX_NODES = 50_000
MAX_TENSORS = 50_000
#: inputs of a model, and outputs
MAX_INTERFACE = 1000
#: of any tensor inside a model
MAX_RANK = 8
#: of an initializer's dimensions
MAX_DIM = 2**31 - 1
#: graphs within graphs (If, Loop, Scan)
MAX_DEPTH = 8
#: of one constant of text: each takes many times its two bytes in the file
MAX_STRINGS = 5_000_000
#: of one constant inside the graph, once made dense
MAX_ELEMENTS = 2**29

#: of a validation set, unpacked
MAX_VALIDATION_BYTES = 2**30
MAX_VALIDATION_ROWS = 1_000_000

#: errors reported for one file; a broken one may have thousands
MAX_FAULTS = 20
#: kinds of operators that an inspection names, the most frequent ones
MOST_KINDS = 30
#: Python, numpy, onnx and onnxruntime map about 200 MiB before they do anything
RUNTIME_BYTES = 384 * 2**20
#: a model is held as protobuf, as onnxruntime's graph and as prepacked weights
MODEL_COPIES = 4
#: what the inspecting process may write altogether: its verdict, never a file
MAX_OUTPUT_BYTES = 2**20
