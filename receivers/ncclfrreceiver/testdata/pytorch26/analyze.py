"""Prints, as JSON, what PyTorch 2.6.0's own analyzer (tools/flight_recorder of its
sources) says of each set of dumps."""
import json, os, shutil, sys, tempfile, types

from tools.flight_recorder.components.builder import build_db
from tools.flight_recorder.components.loader import read_dir


def analyze(dumps):
    with tempfile.TemporaryDirectory() as named:  # as PyTorch names them
        for name in os.listdir(dumps):
            if name.endswith(".pickle"):
                shutil.copy(f"{dumps}/{name}", f"{named}/{name.removesuffix('.pickle')}")
        args = types.SimpleNamespace(trace_dir=named, prefix="rank_", allow_incomplete_ranks=True, just_print_entries=False,
                                     selected_ranks=None, pg_filters=None, verbose=False)
        details, version = read_dir(args)
        db = build_db(details, args, version)
    return [{
        "group": c.pg_desc, "seq": c.collective_seq_id, "name": c.collective_name, "missing": sorted(c.missing_ranks or []),
        "mismatch": {str(r): m.type_of_mismatch.name for r, m in (c.mismatch_collectives or {}).items()},
    } for c in db.collectives if not c.pass_check or c.missing_ranks]


said = {}
for name in sorted(os.listdir(sys.argv[1])):
    try:
        said[name] = analyze(f"{sys.argv[1]}/{name}")
    except Exception as e:
        said[name] = f"{type(e).__name__}: {e}"
json.dump(said, open(sys.argv[2], "w"), indent=1, sort_keys=True)
