#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of Hydra++ heads: `hydrant train heads` beside the same modules in PyTorch, in turn.

    benchmarks/train_throughput.py --hydrant build/release/hydrant --text TEXT --threads 2 --json training.json

Both load the same base and the same first weights, and train on rows of the same text with the recipe hydra++: the
base's distribution as the target, dropout 0.2, AdamW, gradients clipped to norm 1. The modules are written here after
the Hydra paper and the tensors of its files; they are not the authors' code. PyTorch's attention is
scaled_dot_product_attention, its AdamW the fused one. In bf16 its base is bf16 as a whole and its heads run under
autocast.

On a machine with other work `--clock cpu --threads 1` counts CPU time: waiting for a core then costs nothing.

The answers are compared first: the losses of three steps without dropout, from equal weights on an equal batch.
Needs PyTorch, and nothing else from PyPI.
"""

import argparse
import json
import math
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SKIPPED_STEPS = 5  # of each run, before the clock starts
CHECKED_STEPS = 3
RECIPE = {"lr": 1e-3, "weight_decay": 0.1, "clip": 1.0, "dropout": 0.2}
# Ours rounds the inputs of products to bf16, PyTorch also what lies between. Seen: 2e-6 and 3e-5.
TOLERANCE = {"f32": 1e-5, "bf16": 1e-3}


def read_safetensors(path):
    import torch

    kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        view = torch.frombuffer(data, dtype=torch.uint8)[begin:end]
        tensors[name] = view.view(kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors


# --- The modules. Names of parameters are those of the files. ---


def build_modules():
    import torch
    from torch import nn
    from torch.nn import functional

    class Norm(nn.Module):
        def __init__(self, width, epsilon):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))
            self.epsilon = epsilon

        def forward(self, x):
            wide = x.float()
            wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
            return self.weight * wide.to(x.dtype)

    class Attention(nn.Module):
        def __init__(self, config):
            super().__init__()
            width, self.heads = config["hidden_size"], config["num_attention_heads"]
            self.kv_heads = config["num_key_value_heads"]
            self.size = width // self.heads
            self.q_proj = nn.Linear(width, self.heads * self.size, bias=False)
            self.k_proj = nn.Linear(width, self.kv_heads * self.size, bias=False)
            self.v_proj = nn.Linear(width, self.kv_heads * self.size, bias=False)
            self.o_proj = nn.Linear(self.heads * self.size, width, bias=False)

        def forward(self, x, cos, sin):
            def split(y, count):
                return y.view(y.shape[0], y.shape[1], count, self.size).transpose(1, 2)

            def turned(y):
                a, b = y.chunk(2, -1)
                return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(y.dtype)

            q = turned(split(self.q_proj(x), self.heads))
            k = turned(split(self.k_proj(x), self.kv_heads))
            v = split(self.v_proj(x), self.kv_heads)
            mixed = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
            return self.o_proj(mixed.transpose(1, 2).flatten(2))

    class Mlp(nn.Module):
        def __init__(self, config):
            super().__init__()
            width, inner = config["hidden_size"], config["intermediate_size"]
            self.gate_proj = nn.Linear(width, inner, bias=False)
            self.up_proj = nn.Linear(width, inner, bias=False)
            self.down_proj = nn.Linear(inner, width, bias=False)

        def forward(self, x):
            return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))

    class Layer(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.self_attn, self.mlp = Attention(config), Mlp(config)
            self.input_layernorm = Norm(config["hidden_size"], config["rms_norm_eps"])
            self.post_attention_layernorm = Norm(config["hidden_size"], config["rms_norm_eps"])

        def forward(self, x, cos, sin):
            x = x + self.self_attn(self.input_layernorm(x), cos, sin)
            return x + self.mlp(self.post_attention_layernorm(x))

    class Layers(nn.Module):
        """Layers and a norm, over hidden states."""

        def __init__(self, config, count):
            super().__init__()
            self.layers = nn.ModuleList(Layer(config) for _ in range(count))
            self.norm = Norm(config["hidden_size"], config["rms_norm_eps"])
            size = config["hidden_size"] // config["num_attention_heads"]
            steps = torch.arange(0, size, 2) / size
            angles = torch.arange(config["max_position_embeddings"])[:, None] * config["rope_theta"] ** -steps
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

        def forward(self, x):
            cos, sin = self.cos[: x.shape[1]].to(x.dtype), self.sin[: x.shape[1]].to(x.dtype)
            for layer in self.layers:
                x = layer(x, cos, sin)
            return self.norm(x)

    class Block(nn.Module):
        def __init__(self, width, parts):
            super().__init__()
            self.linear = nn.Linear(width * parts, width)
            self.res_connection = nn.Linear(width * parts, width) if parts > 1 else nn.Identity()

        def forward(self, x):
            return self.res_connection(x) + functional.silu(self.linear(x))

    class HydraPlusPlus(nn.Module):
        def __init__(self, config, heads, layers, dropout):
            super().__init__()
            width = config["hidden_size"]
            self.prefix_embeding_layer = Layers(config, 1)

            def stack(head):
                rest = [nn.Dropout(dropout), Block(width, 1)] * (layers - 1)  # one block, as in released heads
                return nn.Sequential(nn.Dropout(dropout), Block(width, head + 2), *rest)

            self.hydra_mlp = nn.ModuleList(stack(head) for head in range(heads))
            self.hydra_lm_head = nn.ModuleList(
                nn.Sequential(nn.Dropout(dropout), nn.Linear(width, config["vocab_size"])) for _ in range(heads))

        def forward(self, hidden, embedded):
            parts, logits = [self.prefix_embeding_layer(hidden)], []
            for head, (mlp, lm_head) in enumerate(zip(self.hydra_mlp, self.hydra_lm_head)):
                parts.append(embedded.roll(-(head + 1), dims=1))
                logits.append(lm_head(mlp(torch.cat(parts, -1))))
            return logits

    return Layers, HydraPlusPlus


# --- PyTorch's side: a process of its own ---


class Trainer:
    def __init__(self, job):
        import torch

        self.torch, self.job = torch, job
        torch.set_num_threads(job["threads"])
        torch.set_flush_denormal(True)
        torch.manual_seed(1)
        Layers, HydraPlusPlus = build_modules()
        self.config = config = json.load(open(os.path.join(job["model"], "config.json")))
        self.is_narrow = job["precision"] == "bf16"
        kind = torch.bfloat16 if self.is_narrow else torch.float32
        tensors = read_safetensors(os.path.join(job["model"], "model.safetensors"))
        self.base = Layers(config, config["num_hidden_layers"])
        own = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        embedding = own.pop("embed_tokens.weight")
        self.base.load_state_dict(own)
        self.base = self.base.to(kind).requires_grad_(False).eval()
        self.embedding = embedding.to(torch.float32)
        self.lm_head = tensors.get("lm_head.weight", embedding).to(kind)
        weights = torch.load(job["weights"], weights_only=True)
        self.heads = HydraPlusPlus(config, job["heads"], job["layers"], job["dropout"])
        self.heads.load_state_dict(weights)
        self.heads.train()
        matrices = [p for p in self.heads.parameters() if p.ndim > 1]
        others = [p for p in self.heads.parameters() if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": RECIPE["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            lr=RECIPE["lr"], fused=True)

    def states(self, tokens):
        torch = self.torch
        with torch.no_grad():
            embedded = self.embedding[tokens]
            return self.base(embedded.to(self.lm_head.dtype))

    def step(self, tokens, lengths, hidden):
        """Rows are of `lengths` tokens; what stands behind is padding."""
        torch = self.torch
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_narrow):
            logits = self.heads(hidden.float(), self.embedding[tokens])
        with torch.no_grad():
            targets = torch.softmax((hidden @ self.lm_head.t()).float(), -1)
        loss = 0
        for head, row in enumerate(logits):
            shift = head + 2
            learned = torch.arange(tokens.shape[1] - shift)[None] + shift < lengths[:, None]
            found, wanted = row[:, :-shift], targets[:, shift - 1:-1]
            if not learned.all():
                found, wanted = found[learned], wanted[learned]
            width = found.shape[-1]
            loss = loss + torch.nn.functional.cross_entropy(
                found.reshape(-1, width).float(), wanted.reshape(-1, width))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.heads.parameters(), RECIPE["clip"])
        self.optimizer.step()
        return loss.item()


def batches_of(ids, rows, seq_len):
    """Pieces of seq_len tokens, `rows` at a time; the last one may be short."""
    import torch

    pieces = [ids[i:i + seq_len] for i in range(0, len(ids), seq_len)]
    batches = []
    for i in range(0, len(pieces), rows):
        part = pieces[i:i + rows]
        lengths = torch.tensor([len(p) for p in part])
        tokens = torch.tensor([p + [0] * (seq_len - len(p)) for p in part])
        batches.append((tokens, lengths))
    return batches


def work(job):
    trainer = Trainer(job)
    batches = batches_of(job["ids"], job["rows"], job["seq_len"])
    if job["what"] == "losses":
        losses = [trainer.step(*batches[0], trainer.states(batches[0][0])) for _ in range(CHECKED_STEPS)]
        return {"losses": losses}
    kept = [trainer.states(tokens) for tokens, _ in batches] if job["cached"] else None
    clock = time.perf_counter if job["clock"] == "wall" else time.process_time
    start, count = 0.0, 0
    for step in range(job["steps"]):
        if step == SKIPPED_STEPS:
            start = clock()
        tokens, lengths = batches[step % len(batches)]
        trainer.step(tokens, lengths, kept[step % len(batches)] if kept else trainer.states(tokens))
        count += int(lengths.sum()) if step >= SKIPPED_STEPS else 0
    return {"tokens_per_second": count / (clock() - start)}


# --- Both, in turn ---


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Comparison:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        text = open(options.text, encoding="utf-8").read().replace("<|endoftext|>", "\n").strip()
        tokens = (options.steps + 1) * options.rows * options.seq_len
        text = text[:6 * tokens].strip()
        self.text = self.write("text.txt", text)
        self.ids = self.tokenize(text)[:tokens]
        # A batch of full rows but for the last.
        self.small = text[:int(2.6 * options.rows * options.seq_len)].strip()
        while len(self.tokenize(self.small)) > options.rows * options.seq_len:
            self.small = self.small[:-options.seq_len].strip()
        self.small_text = self.write("small.txt", self.small)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def tokenize(self, text):
        done = subprocess.run([self.options.hydrant, "tokenize", "--model", self.options.model], input=text.encode(),
                              check=True, capture_output=True)
        return json.loads(done.stdout)["ids"] + [2 if self.eos() is None else self.eos()]

    def eos(self):
        return json.load(open(os.path.join(self.options.model, "config.json"))).get("eos_token_id")

    def ours(self, name, text, more):
        o, out = self.options, os.path.join(self.folder, name)
        command = [o.hydrant, "train", "heads", "--arch", "hydra++", "--base", o.model, "--data", text, "--out", out,
                   "--seq-len", str(o.seq_len), "--batch-size", str(o.rows), "--threads", str(o.threads), "--heads",
                   str(o.heads), "--layers", str(o.layers), "--precision", o.precision, "--eval-every", "0", "--force",
                   "--weight-decay", str(RECIPE["weight_decay"]), "--clip", str(RECIPE["clip"]), "--json"] + more
        before = cpu_of_children()
        subprocess.run(command, check=True, capture_output=True)
        self.cpu = cpu_of_children() - before
        return [json.loads(line) for line in open(os.path.join(out, "training", "metrics.jsonl"))]

    def theirs(self, what, **more):
        o = self.options
        job = {"what": what, "model": o.model, "threads": o.threads, "rows": o.rows, "seq_len": o.seq_len,
               "heads": o.heads, "layers": o.layers, "precision": o.precision, "dropout": 0.0,
               "weights": os.path.join(self.folder, "start", "hydra_lm_head.pt"), **more}
        path = self.write("job.json", json.dumps(job))
        done = subprocess.run([sys.executable, __file__, "--job", path], check=True, capture_output=True)
        return json.loads(done.stdout)

    def check(self):
        """Losses of the first steps, from the weights that a run of rate 0 leaves as they are."""
        plain = ["--dropout", "0", "--warmup-steps", "0", "--final-lr", "1", "--log-every", "1"]
        self.ours("start", self.small_text, plain + ["--lr", "0", "--epochs", "1", "--dtype", "f32"])
        steps = plain + ["--lr", str(RECIPE["lr"]), "--epochs", str(CHECKED_STEPS), "--cache-max", "0"]
        ours = [line["loss"] for line in self.ours("small", self.small_text, steps)]
        theirs = self.theirs("losses", ids=self.tokenize(self.small))["losses"]
        print("losses of the first steps: ours", ours, "PyTorch's", theirs, file=sys.stderr)
        if len(ours) != CHECKED_STEPS:
            sys.exit(f"error: {len(ours)} steps were logged, expected {CHECKED_STEPS}")
        for a, b in zip(ours, theirs):
            if not math.isclose(a, b, rel_tol=TOLERANCE[self.options.precision]):
                sys.exit(f"error: the loss is {a} here and {b} in PyTorch: these are different trainings")
        return {"ours": ours, "pytorch": theirs}

    def time_ours(self, cache):
        if self.options.clock == "wall":
            return self.rate_of(self.options.steps, cache)
        # What a run does beside its steps, and the first of them, is in both.
        tokens = (self.options.steps - SKIPPED_STEPS) * self.options.rows * self.options.seq_len
        self.rate_of(self.options.steps, cache)
        whole = self.cpu
        self.rate_of(SKIPPED_STEPS, cache)
        return tokens / (whole - self.cpu)

    def rate_of(self, steps, cache):
        tokens = steps * self.options.rows * self.options.seq_len
        more = ["--tokens", str(tokens), "--epochs", "1", "--dropout", str(RECIPE["dropout"]), "--log-every",
                str(SKIPPED_STEPS), "--save-every", "1000000"]
        lines = self.ours("timed", self.text, more + (["--cache", cache] if cache else []))
        if steps == SKIPPED_STEPS:
            return None
        times = {line["step"]: line["tokens_per_second"] for line in lines}
        # Rates are since the start. All steps but the last one have full rows.
        last = max(step for step in times if step % SKIPPED_STEPS == 0)
        batch = self.options.rows * self.options.seq_len
        seconds = last * batch / times[last] - SKIPPED_STEPS * batch / times[SKIPPED_STEPS]
        return (last - SKIPPED_STEPS) * batch / seconds

    def time_theirs(self, cached):
        more = {"ids": self.ids, "steps": self.options.steps, "cached": cached,
                "clock": self.options.clock, "dropout": RECIPE["dropout"]}
        return self.theirs("time", **more)["tokens_per_second"]

    def run(self):
        cache = os.path.join(self.folder, "cache")
        losses = self.check()
        self.time_ours(cache)  # fills the caches
        ways = {"hydrant": lambda: self.time_ours(None), "pytorch": lambda: self.time_theirs(False),
                "hydrant_cached": lambda: self.time_ours(cache), "pytorch_cached": lambda: self.time_theirs(True)}
        rates = {name: [] for name in ways}
        for done in range(self.options.rounds):
            for name, way in ways.items():
                rates[name].append(way())
                print(f"round {done + 1}, {name}: {rates[name][-1]:.0f} tokens/s", file=sys.stderr)
        median = {name: statistics.median(values) for name, values in rates.items()}
        return {"losses": losses, "tokens_per_second": rates, "median": median,
                "ratio": median["hydrant"] / median["pytorch"],
                "ratio_cached": median["hydrant_cached"] / median["pytorch"]}


def main():
    if sys.argv[1:2] == ["--job"]:
        return print(json.dumps(work(json.load(open(sys.argv[2])))))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hydrant", default="build/release/hydrant", help="the program")
    parser.add_argument("--model", default="models/tale-14m", help="folder of a Llama base with model.safetensors")
    parser.add_argument("--text", required=True, help="plain text")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--precision", choices=["bf16", "f32"], default="bf16", help="of matrix products")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=15, help=f"of a run; the first {SKIPPED_STEPS} are not timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="time that counts")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu needs --threads 1: threads that wait for each other take CPU time, too")
    if options.steps < 2 * SKIPPED_STEPS:
        parser.error(f"--steps is {options.steps}, expected at least {2 * SKIPPED_STEPS}")
    with tempfile.TemporaryDirectory() as folder:
        report = Comparison(options, folder).run()
    report["options"] = vars(options)
    print(f"hydrant {report['median']['hydrant']:.0f} tokens/s, {report['ratio']:.2f} times PyTorch; with cached states "
          f"{report['median']['hydrant_cached']:.0f}, {report['ratio_cached']:.2f} times PyTorch without")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
