"""Planted faults of context parallelism: what has broken such kernels in public, and what is like it."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_PLACE = "bitproof.kernels.delta.ranks"
_in_summary = partial(Fault, module=f"{_PLACE}.summary", caught_by="agreement")
_in_run = partial(Fault, module=f"{_PLACE}.run", caught_by="agreement")
_in_exchange = partial(Fault, module=f"{_PLACE}.exchange", caught_by="agreement")
_in_partition = partial(Fault, module=f"{_PLACE}.partition", caught_by="agreement")

DROPPED = _in_exchange(
    name="drops the first rank's message",
    within="simulated",
    old="enumerate(sent):",
    new="list(enumerate(sent))[1:]:",
    caught_by="reproducibility",
)
SWAPPED = _in_exchange(
    name="swaps the messages of ranks in pairs",
    within="simulated",
    old="received[rank]",
    new="received[min(rank ^ 1, len(sent) - 1)]",
)
STATES = (
    DROPPED,
    SWAPPED,
    _in_exchange(
        name="files messages in the order of their arrival",
        within="run",
        old="exchange([sent[place] for place in range(len(programs))])",
        new="exchange(list(sent.values()))",
        caught_by="invariances",
    ),
    _in_summary(
        name="reads the first head's decay in the summary",
        within="summarise",
        old="load_last(decay_ptr, tile,",
        new="load_last(decay_ptr, (chunk + step) * HEADS,",
    ),
    _in_summary(
        name="begins the summary at the first part's initial state",
        within="summarise",
        old="number = sequence * HEADS + head",
        new="number = head",
    ),
    _in_summary(
        name="multiplies by the transition transposed",
        within="fold",
        old="by.to(tl.float32), state",
        new="by.to(tl.float32).trans(), state",
    ),
    _in_summary(
        name="folds the nearest rank first",
        within="fold",
        old="summary_start(summaries_ptr, (farthest + turn * step)",
        new="summary_start(summaries_ptr, (farthest + (count - turn) * step)",
    ),
    _in_summary(
        name="keeps the chain of a summary in bf16",
        within="summarise",
        old="fine_product(kg.trans(), v_new, kg)",
        new="fine_product(kg.trans(), v_new, kg)\n        state = state.to(tl.bfloat16).to(tl.float32)",
        lanes=("cuda",),
        because="the interpreter's parts have one chunk or two, and one rounding costs what storage does",
    ),
    _in_summary(
        name="writes a summary past K",
        within="store_summary",
        old="inside = (row < K) &",
        new="inside = (row < PADDED_K) &",
        caught_by="memory",
    ),
    _in_run(
        name="counts one rank too few before",
        within="_merge_states",
        old="share.rank - share.pre, 1, share.pre,",
        new="share.rank - share.pre + 1, 1, max(share.pre - 1, 0),",
    ),
    _in_run(
        name="summarises the first part in place of the last",
        within="_merge_states",
        old="last = max(len(share.sequences) - 1, 0)",
        new="last = 0",
    ),
    _in_run(
        name="gives no part but the first its initial state",
        within="cut_states",
        old="list(enumerate(share.sequences))[parts]",
        new="list(enumerate(share.sequences))[parts][:1]",
    ),
    _in_partition(
        name="takes offsets from the rank before",
        within="partition",
        old="inside = [min(max(offsets[n], first), end) - first for n in held]",
        new="inside = [max(offsets[n] - borders[max(rank - 1, 0)], 0) for n in held]",
    ),
    _in_summary(
        name="specialises on the part that is summarised",
        within="summarise",
        old='"sequences", "sequence", "needed", "own"]',
        new='"sequences", "needed", "own"]',
        caught_by="compile_cache",
    ),
)
GRADIENTS = (
    DROPPED,
    SWAPPED,
    _in_exchange(
        name="delivers the forward pass's messages again",
        within="run",
        old="received = exchange([sent[place] for place in range(len(programs))])",
        new=(
            "fresh = exchange([sent[place] for place in range(len(programs))])\n"
            "            received = fresh if received is None else received"
        ),
    ),
    _in_summary(
        name="reads the first head's decay in the mirrored summary",
        within="summarise_gradients",
        old="load_last(decay_ptr, tile,",
        new="load_last(decay_ptr, (chunk + step) * HEADS,",
    ),
    _in_summary(
        name="summarises chunks from the first to the last",
        within="summarise_gradients",
        old="step = chunks - 1 - back",
        new="step = back",
        lanes=("cuda",),
        because="the interpreter's cases seldom have two chunks of a part in the middle",
    ),
    _in_run(
        name="counts one rank too few after",
        within="_merge_gradients",
        old="share.rank + share.post, -1, share.post,",
        new="share.rank + share.post - 1, -1, max(share.post - 1, 0),",
    ),
    _in_run(
        name="folds gradients from the nearest rank on",
        within="_merge_gradients",
        old="share.rank + share.post, -1,",
        new="share.rank + 1, 1,",
    ),
    _in_run(
        name="merges into the first part's gradient",
        within="_merge_gradients",
        old="last = max(len(share.sequences) - 1, 0)",
        new="last = 0",
    ),
    _in_run(
        name="adds the first rank's terms of sums alone",
        within="join_gradients",
        old=".sum(0)",
        new="[0]",
    ),
)
