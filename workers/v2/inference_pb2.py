"""Messages of ``inference.proto``, from the descriptor that ``make protocol`` makes of it."""

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import Default
from google.protobuf.internal import builder

(_file,) = FileDescriptorSet.FromString(Path(__file__).with_name("inference.binpb").read_bytes()).file
DESCRIPTOR = Default().AddSerializedFile(_file.SerializeToString())
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
