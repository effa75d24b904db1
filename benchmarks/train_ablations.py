#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each part of Hydra++ brings: heads trained alike but for one thing, and their tokens per step on prompts.

    benchmarks/train_ablations.py --hydrant build/release/hydrant --base models/tale-14m --data TEXT \\
        --prompts chat_60.jsonl --out runs

Every variant sees the same batches of the same tokens, from one seed, over hidden states of the base that are computed
once (`--cache`). A variant that is trained already is not trained again, and one that was stopped goes on: the script
may be killed and repeated. Then each prompt is continued greedily, and the table says the mean of num_emitted with the
published tree of 63 nodes, and its ratio to that of the whole of Hydra++ with a 95 % interval: both are drawn anew
together, prompt by prompt, 10,000 times. Texts of all variants must be equal: they are the base's.

Nothing but Python's own library is needed.
"""

import argparse
import json
import os
import random
import subprocess
import sys

WHOLE = "whole"
# The recipe hydra++ of `hydrant train heads`, and what each variant has in its place.
VARIANTS = {
    WHOLE: ("teacher loss, prefix layer, 4 layers", []),
    "noise": ("teacher loss, noise 75", ["--noise", "75"]),
    "label": ("label loss", ["--label-loss", "1", "--teacher-loss", "0"]),
    "label-noise": ("label loss, noise 75", ["--label-loss", "1", "--teacher-loss", "0", "--noise", "75"]),
    "no-prefix": ("no prefix layer", ["--arch", "hydra", "--layers", "4"]),
    "layers-1": ("1 layer", ["--layers", "1"]),
    "layers-2": ("2 layers", ["--layers", "2"]),
    "layers-3": ("3 layers", ["--layers", "3"]),
    "layers-5": ("5 layers", ["--layers", "5"]),
}
DRAWS = 10000


def train(args, name, flags):
    out = os.path.join(args.out, name)
    begun = os.path.exists(os.path.join(out, "training", "checkpoint.safetensors"))
    command = [args.hydrant, "train", "heads", "--base", args.base, "--recipe", "hydra++", "--out", out]
    command += [] if "--arch" in flags else ["--arch", "hydra++"]
    for path in args.data:
        command += ["--data", path]
    command += ["--cache", os.path.join(args.out, "states"), "--eval-every", "0"]
    command += [word for flag in args.train_flags for word in flag.split()] + flags + (["--resume"] if begun else [])
    print("#", " ".join(command), flush=True)
    if subprocess.run(command).returncode != 0:
        sys.exit(f"{name}: hydrant ended with an error")


def measure(args, name, prompts):
    found = []
    for prompt in prompts:
        command = [args.hydrant, "run", "--model", args.base, "--draft", os.path.join(args.out, name), "--json"]
        command += ["--tree", "mc_sim_7b_63", "--max-tokens", "96", "--weights", "f32", "--head-weights", "f32"]
        command += ["--prompt", prompt["turns"][0]]
        command += ["--template", "none"] if prompt.get("template") == "none" else []
        answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        found.append((sum(answer["num_emitted"]), len(answer["num_emitted"]), answer["token_ids"]))
    return found


def ratio_of(counts, chosen):
    tokens = steps = 0
    for i in chosen:
        tokens += counts[i][0]
        steps += counts[i][1]
    return tokens / steps


def interval(counts, whole):
    draws = random.Random(1)
    all_prompts = range(len(counts))
    ratios = []
    for _ in range(DRAWS):
        chosen = draws.choices(all_prompts, k=len(counts))
        ratios.append(ratio_of(counts, chosen) / ratio_of(whole, chosen))
    ratios.sort()
    return ratios[int(0.025 * DRAWS)], ratios[int(0.975 * DRAWS)]


def print_table(results):
    whole = results[WHOLE]
    print("| variant | num_emitted | over the whole | 95 % |")
    print("|---|---|---|---|")
    for name, counts in results.items():
        mean, full = (ratio_of(c, range(len(c))) for c in (counts, whole))
        least, most = interval(counts, whole)
        spread = "" if name == WHOLE else f"{least:.3f} .. {most:.3f}"
        print(f"| {VARIANTS[name][0]} | {mean:.3f} | {mean / full:.3f} | {spread} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hydrant", required=True, help="the program")
    parser.add_argument("--base", required=True, help="folder of the base model")
    parser.add_argument("--data", required=True, action="append", help="as of hydrant train heads")
    parser.add_argument("--prompts", required=True, help="JSON lines with 'turns', perhaps 'template': 'none'")
    parser.add_argument("--out", required=True, help="folder of all variants")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="which, with commas between")
    parser.add_argument("--train-flags", action="append", default=[], help="more of hydrant train heads, for all variants")
    args = parser.parse_args()
    names = args.variants.split(",")
    unknown = [name for name in names if name not in VARIANTS]
    if unknown or WHOLE not in names:
        parser.error(f"--variants are some of {', '.join(VARIANTS)}, '{WHOLE}' among them")
    with open(args.prompts, encoding="utf-8") as lines:
        prompts = [json.loads(line) for line in lines if line.strip()]
    os.makedirs(args.out, exist_ok=True)
    for name in names:
        train(args, name, VARIANTS[name][1])
    results = {}
    for name in names:
        results[name] = measure(args, name, prompts)
        if [c[2] for c in results[name]] != [c[2] for c in results[WHOLE]]:
            sys.exit(f"{name}: other texts than those of the whole")
    print_table(results)


if __name__ == "__main__":
    main()
