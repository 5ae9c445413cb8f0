"""Rows of a minute become rows of five; those of ten minutes and of six hours go."""

from itertools import groupby

from django.db import migrations

from scheduler.history.folding import Bucket
from scheduler.history.packing import PackedRow, pack, unpack

FINE, COARSE, GONE = 60, 300, (60, 600, 21600)


def fold(apps, schema_editor) -> None:
    rows = apps.get_model("history", "HistoryRow")
    numbers = {(one.kind, one.name): one.pk for one in apps.get_model("history", "HistoryName").objects.all()}
    names = {number: name for (_, name), number in numbers.items()}
    coarse = []
    fine = rows.objects.filter(resolution=FINE).order_by("start").iterator()
    for start, some in groupby(fine, lambda row: row.start - row.start % COARSE):
        bucket = Bucket()
        for row in some:
            bucket.merge(unpack(PackedRow(*(getattr(row, column) for column in PackedRow._fields)), names))
        packed = pack(bucket, lambda *key: numbers[key])
        coarse.append(rows(resolution=COARSE, start=start, **packed._asdict()))
    rows.objects.bulk_create(coarse, batch_size=500, ignore_conflicts=True)
    rows.objects.filter(resolution__in=GONE).delete()


class Migration(migrations.Migration):
    dependencies = [("history", "0001_initial")]

    operations = [migrations.RunPython(fold, migrations.RunPython.noop)]
