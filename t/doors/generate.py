# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake.kv.TransformersCache on the software device, under the models of transformers where that is installed: the tokens of
its DynamicCache, whatever way they are generated, with the memory that a batch needs and a page a layer.

    generate.py SOURCE PLUGIN [ENVIRONMENT]
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:3])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable

PROGRAM = '''
import json
import sys
try:
    import torch
    import transformers
except ImportError as error:
    print(json.dumps(["skip", str(error)]))
    sys.exit(0)
import glake
from glake import kv

torch.set_num_threads(1)
T, NEW = transformers, 70
SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=97, max_position_embeddings=4096)
MODELS = {"llama": (T.LlamaForCausalLM, T.LlamaConfig(**SIZES)),
          "mistral": (T.MistralForCausalLM, T.MistralConfig(**SIZES, sliding_window=24)),
          "gemma2": (T.Gemma2ForCausalLM, T.Gemma2Config(**SIZES, head_dim=16, sliding_window=24))}
WAYS = {"greedy": {}, "beams": dict(num_beams=3), "three each": dict(do_sample=True, num_return_sequences=3)}
for name, (kind, config) in MODELS.items():
    torch.manual_seed(0)
    model = kind(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    tokens = torch.randint(1, 97, (4, 33))
    mask = torch.ones_like(tokens)
    mask[1, :9] = 0
    for way, options in WAYS.items():
        for front in (False, True)[:1 if "llama" != name else 2]:
            said = []
            for past in (T.DynamicCache(config=config), kv.TransformersCache(config, on_host=True, token_front=front)):
                torch.manual_seed(7)
                said.append(model.generate(tokens, attention_mask=mask, max_new_tokens=NEW, past_key_values=past,
                                           **{"do_sample": False, **options}))
            told = past.figures()
            past.close()
            print(json.dumps([f"{name}, {way}{', tokens in front' * front}", torch.equal(*said), told["held"], told["needed"]]))

# a forward of one token asks once for memory
config = MODELS["llama"][1]
model = MODELS["llama"][0](config).eval()
past = kv.TransformersCache(config, on_host=True, slots=4)
calls = []
with torch.inference_mode():
    model(torch.randint(1, 97, (4, 50)), past_key_values=past, use_cache=True)
    whole, grow = model(torch.ones(4, 1, dtype=torch.long), past_key_values=past, use_cache=True).logits, kv.Cache.grow
    kv.Cache.grow = lambda *a: (calls.append(a[2]), grow(*a))[1]
    for _ in range(3):
        model(torch.ones(4, 1, dtype=torch.long), past_key_values=past, use_cache=True)
    print(json.dumps(["asked", calls]))

    def refuse(*_):
        raise glake.GlakeError("there is no memory")
    kv.Cache.grow = refuse
    try:
        model(torch.ones(4, 1, dtype=torch.long), past_key_values=past, use_cache=True)
    except glake.GlakeError:
        print(json.dumps(["refused", past.get_seq_length()]))
    kv.Cache.grow = grow
    past.crop(-3)
    print(json.dumps(["cropped", past.get_seq_length(), past.layers[0].keys.shape[2]]))
    past.crop(50)
    again = model(torch.ones(4, 1, dtype=torch.long), past_key_values=past, use_cache=True).logits
    print(json.dumps(["again", torch.equal(whole, again)]))
    past.batch_select_indices(torch.tensor([2, 0]))
    two = model(torch.ones(2, 1, dtype=torch.long), past_key_values=past, use_cache=True).logits
    past.batch_repeat_interleave(2)
    past.crop(51)
    four = model(torch.ones(4, 1, dtype=torch.long), past_key_values=past, use_cache=True).logits
    print(json.dumps(["chosen", torch.allclose(four[::2], two, atol=1e-5), list(past.layers[2].values.shape)]))
    try:
        past.batch_repeat_interleave(2)
    except glake.GlakeError as error:
        print(json.dumps(["more", str(error)]))
    past.reset()
    model(torch.ones(4, 9, dtype=torch.long), past_key_values=past, use_cache=True)
    print(json.dumps(["anew", past.get_seq_length(), past.figures()["length"]]))
past.close()

# with gradients, as when a model is called without a thought of them
said = []
for past in (T.DynamicCache(config=config), kv.TransformersCache(config, on_host=True)):
    tokens = torch.randint(1, 97, (2, 40), generator=torch.Generator().manual_seed(3))
    for part in (tokens[:, :38], tokens[:, 38:39], tokens[:, 39:]):
        out = model(part, past_key_values=past, use_cache=True).logits
    said.append(out.detach())
past.close()
print(json.dumps(["gradients", torch.allclose(*said, atol=1e-5)]))
del out, said
print(json.dumps(["live", glake.stats(0)["live"]]))
'''

ran = subprocess.run([PACKAGES, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=tap.HUNG, env={
    **os.environ, "GLAKE_DRIVER_BACKEND": "soft", "GLAKE_LIBRARY_PATH": os.path.dirname(PLUGIN),
    "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"})
tap.start()
rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
if rows and rows[0][0] == "skip":
    tap.skip("models of transformers", rows[0][1])
    tap.done()
tap.ok(ran.returncode == 0, "it ends as it should", ran.stderr[-600:])
for name, equal, held, needed in [row for row in rows if len(row) == 4]:
    tap.ok(equal, f"{name}: the tokens of DynamicCache")
    # three layers; beside each other all of them have one page more
    lanes = 1 if "front" in name else 3
    tap.ok(needed <= held <= needed + lanes * (2 << 20), f"{name}: {held} bytes for {needed}")
told = {row[0]: row[1:] for row in rows if len(row) < 4}
tap.equal(told.get("asked"), [[52, 53, 54]], "a step asks once, for a token more")
tap.equal(told.get("refused"), [54], "one that has no memory is none")
tap.equal(told.get("cropped"), [51, 51], "tokens are taken back")
tap.equal(told.get("again"), [True], "and said again")
tap.equal(told.get("chosen"), [True, [4, 2, 52, 16]], "sequences are chosen, and doubled")
tap.has(told.get("more", [""])[0], "a batch of 8 in a cache of 4", "no more than there are")
tap.equal(told.get("anew"), [9, 9], "it begins anew")
tap.equal(told.get("gradients"), [True], "a model that keeps gradients says the same")
tap.equal(told.get("live"), [0], "and nothing is left")
tap.done()
