"""Writes dumps as NCCL would, one folder for each case, and what PyTorch's own
analyzer says of them."""
import copy, io, json, os, pickle, sys, types
from contextlib import redirect_stdout

root = sys.argv[1]
F = "Float"


def entry(i, name, seq, ins, outs, state="completed", types=(F, F), group=("0", "default_pg"), p2p=0):
    return {
        "record_id": i, "pg_id": 0, "process_group": group, "collective_seq_id": seq, "p2p_seq_id": p2p,
        "op_id": i + 1, "profiling_name": "nccl:" + name, "time_created_ns": 1_795_237_437_000_000_000 + i * 1_000_000,
        "input_sizes": ins, "input_dtypes": [types[0]] * len(ins), "output_sizes": outs, "output_dtypes": [types[1]] * len(outs),
        "state": state, "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": p2p > 0,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "frames": [{"name": "step", "filename": "/srv/train/train.py", "line": seq}],
    }


def ar(n=64, **k):
    return ("all_reduce", [[n]], [[n]], k)


def job(*ranks, waits=None):
    """Each rank is a list of operations; the last of it is unfinished unless waits
    says otherwise."""
    dumps = []
    for rank, ops in enumerate(ranks):
        done = len(ops) if waits is None or rank not in waits else len(ops) - 1
        entries = []
        for i, (name, ins, outs, kw) in enumerate(ops):
            entries.append(entry(i, name, i + 1, ins, outs, state="completed" if i < done else "scheduled", **kw))
        dumps.append(entries)
    return dumps


bc = ("broadcast", [[8]], [[8]], {})
ag = ("_all_gather_base", [[16]], [[64]], {})
cases = {
    "all_matches": job([ar(), bc, ag], [ar(), bc, ag], [ar(), bc, ag], [ar(), bc, ag]),
    "one_missing": job([ar(), ag], [ar(), ag], [ar()], [ar(), ag], waits=[0, 1, 3]),
    "two_missing": job([ar(), ag], [ar()], [ar()], [ar(), ag], waits=[0, 3]),
    "first_rank_missing": job([ar()], [ar(), ag], [ar(), ag], [ar(), ag], waits=[1, 2, 3]),
    "two_behind": job([ar(), ag, bc], [ar(), ag, bc], [ar()], [ar(), ag, bc], waits=[0, 1, 3]),
    "other_operation": job([ar(), ag], [ar(), bc], [ar(), ag], [ar(), ag], waits=[0, 1, 2, 3]),
    "other_size": job([ar(), ar()], [ar(), ar()], [ar(), ar()], [ar(), ar(32)], waits=[0, 1, 2, 3]),
    "other_type": job([ar(), ar()], [ar(), ar()], [ar(), ar(types=("BFloat16", "BFloat16"))], [ar(), ar()], waits=[0, 1, 2, 3]),
    "other_output": job([ag], [ag], [("_all_gather_base", [[16]], [[60]], {})], [ag], waits=[0, 1, 2, 3]),
    "order": job([ar(), ag, bc], [ar(), ag, bc], [ar(), bc, ag], [ar(), ag, bc], waits=[0, 1, 2, 3]),
    "early_mismatch": job([ar(), bc, ag], [ar(), bc, ag], [ar(32), bc, ag], [ar(), bc, ag]),
    "gather_to_root": job(*[[("gather", [[4]], [[16]] if r == 0 else [[0]], {})] for r in range(4)]),
    "scatter_from_root": job(*[[("scatter", [[16]] if r == 0 else [[0]], [[4]], {})] for r in range(4)]),
    "all_to_all_uneven_and_even": job(*[[("all_to_all", [[4 + r]], [[7 - r]], {})] for r in range(4)]),
    "one_sent_no_dump": job([ar(), ag], [ar(), ag], [ar(), ag], [], waits=[0, 1, 2]),
    "nobody_waits_and_one_behind": job([ar(), bc], [ar(), bc], [ar()], [ar(), bc]),
}
silent = {"one_sent_no_dump": [3]}


def write(case, dumps):
    os.makedirs(f"{root}/{case}", exist_ok=True)
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    for rank, entries in enumerate(dumps):
        if rank in silent.get(case, []):
            continue
        dump = {"version": "2.10", "comm_lib_version": "2.21.5", "pg_config": config, "pg_status": {}, "entries": entries}
        with open(f"{root}/{case}/rank_{rank}", "wb") as f:
            pickle.dump(dump, f, protocol=2)


def analyse(case):
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.loader import read_dir
    args = types.SimpleNamespace(trace_dir=f"{root}/{case}", prefix="rank_", allow_incomplete_ranks=True, just_print_entries=False,
                                 selected_ranks=None, pg_filters=None, mismatch_cap=10, transform_ft=False, group_world_size=None,
                                 print_stack_trace=False, verbose=False)
    details, version = read_dir(args)
    db = build_db(details, args, version)
    said = []
    for c in db.collectives:
        if c.pass_check and not c.missing_ranks:
            continue
        said.append({
            "seq": c.collective_seq_id, "name": c.collective_name, "missing": sorted(c.missing_ranks or []),
            "mismatch": {str(r): str(m.type_of_mismatch.state.name) for r, m in (c.mismatch_collectives or {}).items()},
        })
    return said


out = {}
for case, dumps in cases.items():
    write(case, dumps)
    try:
        out[case] = analyse(case)
    except Exception as e:
        out[case] = f"{type(e).__name__}: {e}"
json.dump(out, open(f"{root}/analyzer.json", "w"), indent=1, sort_keys=True)
