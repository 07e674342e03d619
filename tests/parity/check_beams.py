#!/usr/bin/env python3
"""Beam search compared with transformers' generate(num_beams=...), token for token, on small random models.

    check_beams.py TOOL      TOOL: tests/beam_tool of a build
"""
import itertools
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

VOCAB = 61
TOKENS = 14
ENDS = (False, True, "never")
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=80, vocab_size=VOCAB,
                                         initializer_range=0.15, bos_token_id=0, eos_token_id=0)),
    "llama": (LlamaForCausalLM, LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                            hidden_size=32, intermediate_size=64, max_position_embeddings=80,
                                            vocab_size=VOCAB, initializer_range=0.15, bos_token_id=0,
                                            eos_token_id=0)),
}


def expected(model, prompt, beams, penalty, end, tokens, stops):
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                         num_beams=beams, num_return_sequences=beams, length_penalty=penalty, early_stopping=end,
                         max_new_tokens=tokens, do_sample=False, eos_token_id=stops or None, pad_token_id=VOCAB - 1,
                         return_dict_in_generate=True, output_scores=True)
    texts = []
    for row, indices in zip(out.sequences, out.beam_indices):
        texts.append(row[len(prompt):len(prompt) + int((indices >= 0).sum())].tolist())
    return list(zip(out.sequences_scores.tolist(), texts))


def main():
    torch.set_num_threads(1)
    tool = sys.argv[1]
    torch.manual_seed(1)
    prompts = [torch.randint(0, VOCAB, (n,)).tolist() for n in (1, 16, 37)]
    cases = list(itertools.product((2, 5), (0.0, 1.0, 2.0, -0.5), range(3), ([], [3, 7], list(range(0, 48, 6))))) + [
        (16, 1.0, 0, [5]), (3, 0.8, 2, [9])]
    compared = stopped = 0
    with tempfile.TemporaryDirectory() as directory:
        for name, (kind, config) in MODELS.items():
            model = kind(config).eval()
            model.generation_config.eos_token_id = None
            path = os.path.join(directory, name)
            model.save_pretrained(path)
            for beams, penalty, end, stops in cases[::3] if name == "llama" else cases[1::3]:
                out = subprocess.run([tool, path, str(beams), str(penalty), str(end), str(TOKENS),
                                      ",".join(map(str, stops)) or "-"],
                                     input="".join(" ".join(map(str, p)) + "\n" for p in prompts),
                                     capture_output=True, text=True, check=True).stdout
                lines = out.splitlines()
                assert len(lines) == len(prompts), f"{name}: {len(lines)} answers to {len(prompts)} prompts"
                for prompt, line in zip(prompts, lines):
                    want = expected(model, prompt, beams, penalty, ENDS[end], TOKENS, stops)
                    have = json.loads(line)
                    what = f"{name}, {len(prompt)} tokens, {beams} beams, penalty {penalty}, {ENDS[end]}, {stops}"
                    # transformers fills places that no hypothesis took with a score of -1e9.
                    want = [w for w in want if w[0] > -1e8]
                    assert [t for _, t in want] == [t for _, t in have], f"{what}:\n{want}\n{have}"
                    for (a, _), (b, _) in zip(want, have):
                        assert abs(a - b) < 1e-4 * max(1, abs(a)), f"{what}: score {b}, not {a}"
                    compared += len(have)
                    stopped += sum(1 for _, t in have if t[-1] in stops)
    assert stopped > compared / 10, f"only {stopped} of {compared} ended"
    print(f"{compared} hypotheses are those of transformers, {stopped} of them ended by a token")


if __name__ == "__main__":
    main()
