"""Rows of a day, from the rows of six hours that a year before this release left."""

from itertools import groupby

from django.db import migrations

from scheduler.history.folding import Bucket
from scheduler.history.packing import PackedRow, pack, unpack

FROM, TO = 21_600, 86_400


def add_days(apps, schema_editor) -> None:
    """One row a day, where there is none yet."""
    Row, Name = apps.get_model("history", "HistoryRow"), apps.get_model("history", "HistoryName")
    # Numbers name what they are in this release's rows, too.
    names = {number: str(number) for number in Name.objects.values_list("pk", flat=True)}
    rows = Row.objects.filter(resolution=FROM).order_by("start").iterator(chunk_size=100)
    for day, parts in groupby(rows, key=lambda row: row.start - row.start % TO):
        bucket = Bucket()
        for row in parts:
            bucket.merge(unpack(PackedRow(*(bytes(v) if n else v for n, v in enumerate(_columns(row)))), names))
        packed = pack(bucket, lambda kind, name: int(name))._asdict()
        Row.objects.bulk_create([Row(resolution=TO, start=day, **packed)], ignore_conflicts=True)


def _columns(row) -> list:
    return [getattr(row, name) for name in PackedRow._fields]


def remove_days(apps, schema_editor) -> None:
    apps.get_model("history", "HistoryRow").objects.filter(resolution=TO).delete()


class Migration(migrations.Migration):
    dependencies = [("history", "0001_rows")]
    operations = [migrations.RunPython(add_days, remove_days)]
