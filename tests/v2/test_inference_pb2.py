"""Our messages are those of the public definition, which tritonclient has, too."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tritonclient.grpc import model_config_pb2, service_pb2

from workers.v2 import inference_pb2


def field(descriptor: FieldDescriptor) -> tuple:
    named = descriptor.message_type or descriptor.enum_type
    oneof = descriptor.containing_oneof and descriptor.containing_oneof.name
    return descriptor.name, descriptor.type, descriptor.is_repeated, named and named.name, oneof


def assert_same(ours: Descriptor, theirs: Descriptor) -> None:
    for number, descriptor in ours.fields_by_number.items():
        assert field(descriptor) == field(theirs.fields_by_number[number]), descriptor.full_name
    for name, nested in ours.nested_types_by_name.items():
        assert_same(nested, theirs.nested_types_by_name[name])


@pytest.mark.parametrize("name", inference_pb2.DESCRIPTOR.message_types_by_name)
def test_messages_have_the_public_fields(name):
    ours = getattr(inference_pb2, name).DESCRIPTOR
    theirs = getattr(service_pb2, name, None) or getattr(model_config_pb2, name)
    assert_same(ours, theirs.DESCRIPTOR)
    if not name.startswith(("ModelConfig", "ModelInput", "ModelOutput", "ModelStatistics")) or name.endswith("Request"):
        assert set(ours.fields_by_name) == set(theirs.DESCRIPTOR.fields_by_name)


def test_datatypes_have_the_public_numbers():
    assert inference_pb2.DataType.items() == model_config_pb2.DataType.items()
