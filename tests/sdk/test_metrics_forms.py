"""One test for each form of metric line that frameworks print: step, names, values.

The lines are our own, in the layouts of the frameworks.
"""

from __future__ import annotations

import math

import pytest

from faultbook.metrics import METRIC_HINTS, may_be_metric, read_series
from faultbook.model import Series

NAN, INF = math.nan, math.inf

# (form, lines, expected {name: (steps, values)}): names that are not listed are not checked.
FORMS: list[tuple[str, list[str], dict[str, tuple[list[float], list[float]]]]] = [
    (
        "1 HF Trainer dict with bare nan",
        [
            "{'loss': 1.25, 'grad_norm': nan, 'learning_rate': 2.5e-07, 'epoch': 0.5}",
            "{'loss': 0.0, 'grad_norm': inf, 'learning_rate': 5e-07, 'epoch': 1.0}",
        ],
        {
            "loss": ([0.5, 1.0], [1.25, 0.0]),
            "grad_norm": ([0.5, 1.0], [NAN, INF]),
            "learning_rate": ([0.5, 1.0], [2.5e-07, 5e-07]),
        },
    ),
    (
        "2 HF dict with string values",
        ["{'loss': '0.75', 'grad_norm': '1.5', 'epoch': '0.25', 'global_step/max_steps': '7/9000'}"],
        {"loss": ([7], [0.75]), "grad_norm": ([7], [1.5])},
    ),
    ("3 HF eval dict", ["{'eval_loss': 0.61, 'eval_runtime': 84.5, 'epoch': 2.0}"], {"eval_loss": ([2.0], [0.61])}),
    ("4 typographic quotes", ["{‘loss’: 1.75, ‘epoch’: 0.25}"], {"loss": ([0.25], [1.75])}),
    (
        "5 trainer_log.jsonl, null is no value",
        ['{"current_steps": 10, "loss": 0.5, "eval_loss": null, "lr": 9e-06, "epoch": 0.01}'],
        {"loss": ([10], [0.5]), "lr": ([10], [9e-06])},
    ),
    (
        "6 TRL PPO, slashes in names",
        ["{'objective/kl': 5.5, 'policy/approxkl_avg': 0.002, 'val/ratio': 1.02, 'episode': 32}"],
        {"objective/kl": ([32], [5.5]), "policy/approxkl_avg": ([32], [0.002]), "val/ratio": ([32], [1.02])},
    ),
    (
        "7 Keras, redrawn in place",
        [
            "Epoch 1/3",
            "100/200 [=====>....] - ETA: 3s - loss: 0.9000 - accuracy: 0.5000\r"
            "200/200 [==========] - 48s 24ms/step - loss: 0.8000 - accuracy: 0.5500 - val_loss: 0.7000",
            "Epoch 2/3",
            "200/200 [==========] - 48s 24ms/step - loss: nan - accuracy: 0.0000e+00 - val_loss: nan",
        ],
        {
            "loss": ([100, 200, 400], [0.9, 0.8, NAN]),
            "val_loss": ([200, 400], [0.7, NAN]),
            "accuracy": ([100, 200, 400], [0.5, 0.55, 0.0]),
        },
    ),
    (
        "8 Megatron",
        [
            " iteration      100/  500 | consumed samples:  6400 | elapsed time per iteration (ms): 613.5 |"
            " learning rate: 6.500E-06 | global batch size:    64 | lm loss: 7.250000E+00 | loss scale: 4096.0 |"
            " grad norm: 0.750 | number of skipped iterations:   0 | number of nan iterations:   0 |",
            " iteration      110/  500 | consumed samples:  7040 | elapsed time per iteration (ms): 612.0 |"
            " learning rate: 6.600E-06 | global batch size:    64 | loss scale: 4096.0 |"
            " grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   0 |",
        ],
        {
            "lm loss": ([100], [7.25]),
            "loss scale": ([100, 110], [4096.0, 4096.0]),
            "grad norm": ([100, 110], [0.75, NAN]),
            "learning rate": ([100, 110], [6.5e-06, 6.6e-06]),
            "elapsed time per iteration (ms)": ([100, 110], [613.5, 612.0]),
            "number of nan iterations": ([100, 110], [0, 0]),
        },
    ),
    (
        "9 DeepSpeed loss scaler: the new scale, unchanged under hysteresis",
        [
            "[2031-05-06 10:00:00,100] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping"
            " step. Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",
            "[2031-05-06 10:00:01,100] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping"
            " step. Attempted loss scale: 65536, reducing to 32768",
        ],
        {"loss scale": ([0, 1], [65536, 32768])},
    ),
    (
        "10 DeepSpeed timer, sizes become bytes",
        [
            "[2031-05-06 10:00:00,100] [INFO] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, "
            "RunningAvgSamplesPerSec=8.5, CurrSamplesPerSec=8.25, MemAllocated=0.5GB, MaxMemAllocated=2.0GB"
        ],
        {"MemAllocated": ([10], [0.5 * 2**30]), "MaxMemAllocated": ([10], [2.0 * 2**30])},
    ),
    (
        "11 DeepSpeed-Chat PPO, reward on the next line",
        ["epoch: 0|step: 31|ppo_ep: 1|act_loss: 3.5|cri_loss: 30.5|unsuper_loss: 0.0", "average reward score: -7.75"],
        {"act_loss": ([31], [3.5]), "cri_loss": ([31], [30.5]), "average reward score": ([31], [-7.75])},
    ),
    (
        "12 tqdm postfix, redraws of one counter are one record",
        [
            "Epoch 0:  50%|█████     | 53/106 [00:40<00:40, 1.31it/s, v_num=d39l, train_loss_step=2.800]\r"
            "Epoch 0:  50%|█████     | 53/106 [00:40<00:40, 1.31it/s, v_num=d39l, train_loss_step=2.750]",
            "Epoch 0: 100%|██████████| 106/106 [01:20<00:00, 1.31it/s, v_num=d39l, train_loss_step=2.600]",
            "steps:   1%|          | 13/1280 [00:51<1:23:00,  3.93s/it, avr_loss=nan]",
        ],
        {"train_loss_step": ([53, 106], [2.75, 2.6]), "avr_loss": ([13], [NAN])},
    ),
    (
        "13 apex scaler: the value, not the index",
        ["Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 2.0237e-320"],
        {"reducing loss scale": ([0], [2.0237e-320])},
    ),
    (
        "14 fairseq epoch summary",
        ["| epoch 027 | loss 6.25 | ppl 31.5 | num_updates 10198 | lr 0.000626 | gnorm 0.39 | loss_scale 0.5"],
        {"loss": ([10198], [6.25]), "gnorm": ([10198], [0.39]), "loss_scale": ([10198], [0.5])},
    ),
    (
        "15 fairseq train_inner",
        ["epoch 001:   3615 / 6547 loss=0.5, num_updates=3600, lr=9e-06, gnorm=3.75, loss_scale=1399"],
        {"loss": ([3600], [0.5]), "lr": ([3600], [9e-06]), "loss_scale": ([3600], [1399])},
    ),
    (
        "16 nanoGPT",
        ["step 3000: train loss 4.0390, val loss 4.0427", "iter 3000: loss 3.9883, time 1099.34ms, mfu 15.34%"],
        {
            "train loss": ([3000], [4.039]),
            "val loss": ([3000], [4.0427]),
            "loss": ([3000], [3.9883]),
            "time": ([3000], [1099.34]),
            "mfu": ([3000], [15.34]),
        },
    ),
    (
        "17 nanochat, thousands commas",
        ["step 00004/21400 (0.02%) | loss: 8.89 | dt: 989.44ms | tok/sec: 529,882 | mfu: 74.13"],
        {"loss": ([4], [8.89]), "tok/sec": ([4], [529882]), "dt": ([4], [989.44])},
    ),
    (
        "18 leading bare step",
        ["100000 | loss nan | lr 0.000000e+00 | 2006.12ms | mfu 1.68%"],
        {"loss": ([100000], [NAN]), "lr": ([100000], [0.0])},
    ),
    (
        "19 litgpt, n/a is no value",
        ["Epoch 0 | iter  1 step  1 | loss train: 1.344, val: n/a | iter time: 103.3 s (step)"],
        {"loss train": ([1], [1.344])},
    ),
    (
        "20 MaxText",
        ["completed step: 9, seconds: 5.667, TFLOP/s/device: 134.9, Tokens/s/device: 8672.7, loss: 10.374"],
        {"loss": ([9], [10.374]), "Tokens/s/device": ([9], [8672.7]), "seconds": ([9], [5.667])},
    ),
    (
        "21 mlx-lm, names with blanks and no colon",
        ["Iter 70: Train loss 2.786, Learning Rate 1.000e-05, It/sec 17.598, Peak mem 1.437 GB"],
        {"Train loss": ([70], [2.786]), "Learning Rate": ([70], [1e-05]), "It/sec": ([70], [17.598])},
    ),
    (
        "22 torchvision meter: the current value, not the average",
        ["Epoch: [1][16/5005]\tTime 67.619 (11.054)\tData 67.544 (10.785)\tLoss 6.9076 (6.9079)"],
        {"Loss": ([16], [6.9076]), "Time": ([16], [67.619]), "Data": ([16], [67.544])},
    ),
    (
        "23 open_clip",
        [
            "Train Epoch: 0 [ 256/109468 (0%)] Loss: 0.776 (0.800) Data (t): 2.429 Batch (t): 2.987, 42.8/s "
            "LR: 0.000001 Logit Scale: 99.987"
        ],
        {"Loss": ([256], [0.776]), "LR": ([256], [1e-06]), "Logit Scale": ([256], [99.987]), "Data (t)": ([256], [2.429])},
    ),
    (
        "24 mmdet",
        [
            "2031-05-06 10:00:00,100 - mmdet - INFO - Epoch [1][50/5808] lr: 1.000e-02, eta: 5:41:49, time: 0.784, "
            "data_time: 0.085, memory: 8104, loss_bbox: nan, loss: nan, grad_norm: nan"
        ],
        {"loss": ([50], [NAN]), "loss_bbox": ([50], [NAN]), "grad_norm": ([50], [NAN]), "lr": ([50], [0.01])},
    ),
    (
        "25 detectron2, and tensor wrappers",
        [
            "[05/06 10:00:00 d2.utils.events]:  eta: 5:41:49  iter: 379  total_loss: 1.707  data_time: 0.0033  "
            "lr: 0.003796  max_mem: 3782M",
            "iteration=380 loss_dict = {'loss_cls': tensor(nan, device='cuda:0'), 'loss_box': tensor(0.5)}",
        ],
        {
            "total_loss": ([379], [1.707]),
            "max_mem": ([379], [3782 * 2**20]),
            "loss_cls": ([380], [NAN]),
            "loss_box": ([380], [0.5]),
        },
    ),
    (
        "26 YOLO table under its header",
        [
            "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
            "      21/55      9.95G       0.23       5.07      2.977         12        640: 100%|██████████| 9/9",
        ],
        {"box_loss": ([21], [0.23]), "cls_loss": ([21], [5.07]), "GPU_mem": ([21], [9.95 * 2**30])},
    ),
    (
        "27 darknet: current and average; regions over no object are nothing",
        [
            "Region 23 Avg IOU: -nan, Class: -nan, Obj: -nan, No Obj: 0.5, Avg Recall: -nan,  count: 0",
            "2: 519.797913, 519.720886 avg loss, 0.000000 rate, 2.05 seconds, 128 images",
        ],
        {"loss": ([2], [519.797913]), "avg loss": ([2], [519.720886]), "rate": ([2], [0.0])},
    ),
    (
        "28 Caffe behind a glog head",
        ["I1128 08:59:24.187857 14972 solver.cpp:218] Iteration 1170 (6.249 iter/s, 0.16s/1 iters), loss = 87.3365"],
        {"loss": ([1170], [87.3365])},
    ),
    (
        "29 TF1 estimator",
        ["INFO:tensorflow:loss = 1.8717, step = 31601 (182.200 sec)", "INFO:tensorflow:global_step/sec: 1.17"],
        {"loss": ([31601], [1.8717]), "global_step/sec": ([31601], [1.17])},
    ),
    (
        "30 verl: entropy is no loss",
        [
            "(main_task pid=129) step:7 - actor/entropy_loss:0.330 - actor/grad_norm:0.004 - "
            "critic/score/mean:0.000 - timing_s/step:122.3 - actor/pg_loss:np.float64(-0.0045)"
        ],
        {
            "actor/entropy_loss": ([7], [0.33]),
            "actor/grad_norm": ([7], [0.004]),
            "timing_s/step": ([7], [122.3]),
            "actor/pg_loss": ([7], [-0.0045]),
        },
    ),
    (
        "31 SGLang",
        [
            "[2031-01-06 02:58:11 TP0] Decode batch. #running-req: 2, #token: 307481, token usage: 1.00, "
            "gen throughput (token/s): 10.92, #queue-req: 0"
        ],
        {"token usage": ([0], [1.0]), "gen throughput (token/s)": ([0], [10.92]), "#running-req": ([0], [2])},
    ),
    (
        "32 vLLM stats",
        [
            "INFO 02-23 18:49:03 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
            "throughput: 12.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.3%"
        ],
        {
            "Avg prompt throughput": ([0], [0.0]),
            "Avg generation throughput": ([0], [12.5]),
            "Running": ([0], [1]),
            "GPU KV cache usage": ([0], [1.3]),
        },
    ),
    (
        "33 GAN pairs",
        [
            "Elapsed [1:22:48] batch: 6000  d_loss: 0.000  g_loss: 16.72",
            "(epoch: 1, iters: 600, time: 0.311, data: 0.000) D_A: 0.064 G_A: 0.623",
        ],
        {"d_loss": ([6000], [0.0]), "g_loss": ([6000], [16.72]), "D_A": ([600], [0.064])},
    ),
    (
        "34 column table",
        ["pol_surr |  pol_entpen |  vf_loss |  kl", " 0.42724 |    0.00000 | 1.67e+05 | 1.757", "-0.1 | 0.0 | nan | nan"],
        {"vf_loss": ([0, 1], [1.67e5, NAN]), "kl": ([0, 1], [1.757, NAN])},
    ),
    (
        "34b stable-baselines, one name a row",
        ["| approxkl        | 6.66e-16 |", "| policy_entropy  | 1.5      |", "| value_loss      | 0.25     |"],
        {"approxkl": ([0], [6.66e-16]), "value_loss": ([0], [0.25])},
    ),
    (
        "35 notebook table",
        [
            "Step | Training Loss | reward | kl",
            "-- | -- | -- | --",
            "3 | 0.000000 | 0.50 | 0.000010",
            "4 | 0.000100 | 0.25 | 0.000020",
        ],
        {"Training Loss": ([3, 4], [0.0, 0.0001]), "reward": ([3, 4], [0.5, 0.25])},
    ),
    (
        "36 speechbrain and tacotron",
        [
            "epoch: 1, lr_model: 9.00e-01 - train loss: 3.11 - valid loss: 2.90 - valid WER: 1.00e+02",
            "Train loss 12002 4.972964 Grad Norm inf 1.78s/it",
        ],
        {
            "train loss": ([1], [3.11]),
            "valid WER": ([1], [100.0]),
            "Train loss": ([12002], [4.972964]),
            "Grad Norm": ([12002], [INF]),
        },
    ),
    (
        "37 insightface",
        [
            "Training: 2031-05-06 10:00:00,100-Speed 2183.37 samples/sec   Loss nan   LearningRate 0.001   Epoch: 0   "
            "Global Step: 30   Fp16 Grad Scale:  0   Required: 5 hours"
        ],
        {"Loss": ([30], [NAN]), "LearningRate": ([30], [0.001]), "Fp16 Grad Scale": ([30], [0])},
    ),
    (
        "38 key=value and Key:val",
        [
            "step=220  loss=1.43   gnorm=7.7",
            "Epoch:65, Training_loss:0.6819, Eval_acc:0.5298",
            "Epoch:[0/19](100/24681) total_loss:5.251 lr:0.0002",
        ],
        {"loss": ([220], [1.43]), "gnorm": ([220], [7.7]), "Training_loss": ([65], [0.6819]), "lr": ([100], [0.0002])},
    ),
    (
        "39 BigDL, a word for the value",
        [
            "[Epoch 64 736512/1281167][Iteration 45457][Wall Clock 1.5s] Trained 64 records in 0.5 seconds. "
            "Throughput is 100.5 records/second. Loss is Infinity. Current learning rate is 0.0462."
        ],
        {"Loss": ([45457], [INF]), "Current learning rate": ([45457], [0.0462])},
    ),
    (
        "40 memory lines",
        ["Memory info of GPU /physical_device:GPU:0: current: 0.18, peak: 2.55"],
        {"current memory": ([0], [0.18]), "peak memory": ([0], [2.55])},
    ),
    (
        "sentences",
        [
            "validation loss at iteration 1000 on the validation set | lm loss value: 2.25E+00 | lm loss PPL: 9.5E+00 |",
            "loss at step 1010 is nan",
        ],
        {"validation loss": ([1000], [2.25]), "loss": ([1010], [NAN])},
    ),
    (
        "torchtitan",
        ["[rank0]:[titan] 2031-05-06 10:00:01,123 - root - INFO - step: 10  loss:  7.125  memory: 45.5GiB(57%)  tps: 7,123"],
        {"loss": ([10], [7.125]), "memory": ([10], [45.5 * 2**30]), "tps": ([10], [7123])},
    ),
    (
        "torchtune: counters in front of the bar",
        ["1|10|Loss: 1.25:   1%|          | 10/1000 [00:10<16:30,  1.00s/it]"],
        {"Loss": ([10], [1.25])},
    ),
    (
        "timm",
        ["Train: 0 [  50/1251 (  4%)]  Loss: 6.92 (6.93)  Time: 0.500s,  512.00/s  LR: 1.000e-05  Data: 0.010 (0.020)"],
        {"Loss": ([50], [6.92]), "LR": ([50], [1e-05]), "Data": ([50], [0.01])},
    ),
    (
        "llm.c with z-scores",
        ["step   10/1000 | loss 5.125 (+1.23z)| norm 1.25 (-0.12z)| lr 1.00e-04 | 123.45 ms"],
        {"loss": ([10], [5.125]), "norm": ([10], [1.25]), "lr": ([10], [1e-4])},
    ),
    (
        "Composer console, names under a counter",
        ["[batch=10/1000]:", "\t Train loss/train/total: 7.125"],
        {"Train loss/train/total": ([10], [7.125])},
    ),
    (
        "boosting",
        ["[40]\ttraining's binary_logloss: 0.125\tvalid_1's binary_logloss: 0.25"],
        {"training's binary_logloss": ([40], [0.125]), "valid_1's binary_logloss": ([40], [0.25])},
    ),
    (
        "a temperature beside a loss is a metric",
        ["Loss: 2.5, val_loss=n/a lr=3.0e-4, Temperature: 0.0001, x=tensor(2.5, device='cuda:0')"],
        {"Loss": ([0], [2.5]), "Temperature": ([0], [0.0001]), "lr": ([0], [3e-4])},
    ),
    (
        "names in brackets",
        [
            "2031-05-06 10:00:00.100 | INFO     | fit:25 - [R0] | E5 iter[ 14/ 15] | [Loss] 515.5 | [step]    89 | [time] 0.4m",
            "2031-05-06 10:00:09.100 | INFO     | fit:25 - [R0] | E6 iter[ 14/ 15] | [Loss] nan | [step]   104 | [time] 0.4m",
        ],
        {"Loss": ([89, 104], [515.5, NAN])},
    ),
    ("41 wandb sparklines are no numbers", ["wandb:   actor/entropy_loss █▇▇█▆▅▄▃▂▁ 1"], {}),
]


def same(left: list[float], right: list[float]) -> bool:
    return len(left) == len(right) and all(
        a == pytest.approx(b, rel=1e-12) or (a != a and b != b) for a, b in zip(left, right, strict=True)
    )


def by_name(series: list[Series]) -> dict[str, Series]:
    return {s.name: s for s in series}


@pytest.mark.parametrize(("form", "lines", "expected"), FORMS, ids=[f[0] for f in FORMS])
def test_form(form: str, lines: list[str], expected: dict[str, tuple[list[float], list[float]]]) -> None:
    found = by_name(read_series(enumerate(lines, 1)))
    for name, (steps, values) in expected.items():
        assert name in found, f"{name} not in {sorted(found)}"
        assert same(list(found[name].steps), steps), (name, found[name])
        assert same(list(found[name].values), values), (name, found[name])
    if not expected:
        assert found == {}


@pytest.mark.parametrize(("form", "lines", "expected"), FORMS, ids=[f[0] for f in FORMS])
def test_hints_admit_every_line_that_holds_a_metric(
    form: str, lines: list[str], expected: dict[str, tuple[list[float], list[float]]]
) -> None:
    table = form.startswith(("26", "34", "35"))
    for s in read_series(enumerate(lines, 1)):
        if not table:
            assert all(may_be_metric(lines[n - 1]) for n in s.lines), s
    assert all(h == h.lower() for h in METRIC_HINTS)


@pytest.mark.parametrize(("form", "lines", "expected"), FORMS, ids=[f[0] for f in FORMS])
def test_a_rank_prefix_changes_nothing_but_the_rank(
    form: str, lines: list[str], expected: dict[str, tuple[list[float], list[float]]]
) -> None:
    if form.startswith(("torchtitan", "boosting")) or any("\r" in line for line in lines) or form.startswith(("28", "30")):
        pytest.skip("redraws and heads of their own have no torch prefix")
    plain = read_series(enumerate(lines, 1))
    prefixed = read_series(enumerate(["[rank5]:" + line for line in lines], 1))
    assert [s.name for s in plain] == [s.name for s in prefixed]
    assert all(s.rank == 5 for s in prefixed)
    for a, b in zip(plain, prefixed, strict=True):
        assert same(list(a.values), list(b.values)) and same(list(a.steps), list(b.steps))


NO_METRICS = [
    "2031-05-06 12:30:45,123 - INFO - starting up at 10:20:30",
    "listening on 10.0.0.1:29500, peer 192.168.1.7",
    "torch: 2.13.0, cuda: 12.8.1, transformers: 4.57",
    "input shape=(32, 3, 224, 224) size=[16, 512]",
    "-rw-r--r-- 1 root root 4096 May  6 10:00 /data/loss_curves/step_100.bin",
    "lr=0.001, batch_size=32, epochs=10, weight_decay=0.01",
    "Namespace(batch_size=20, clip=0.25, epochs=6, lr=20, save='loss.pt', seed=1111)",
    "TrainingArguments(learning_rate=5e-05, max_grad_norm=1.0, num_train_epochs=3, logging_steps=10)",
    "  loss_scale ................................... 0",
    "  float16_config ............... enabled=True loss_scale=1024.0 min_loss_scale=1",
    '    "loss_scale": 0,',
    '  "gradient_clipping": 1.0,',
    "    'kl_loss_coef': 0.001,",
    "python train.py --lr 0.001 --grad-norm-clip 1.0 --steps 100",
    '  File "/app/loss.py", line 65, in compute_loss',
    "    loss = 0.5 * (a - b) ** 2",
    "AMP: checks skipped. If you experience zero-mAP or NaN losses you can disable AMP with amp=False.",
    "Loading checkpoint shards:  50%|█████     | 1/2 [00:10<00:10, 10.0s/it]",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.00 GiB. GPU 0 has a total capacity of 79.1 GiB of "
    "which 1.00 GiB is free. Of the allocated memory 59.76 GiB is allocated by PyTorch",
    "failed (exitcode: -9) local_rank: 3 (pid: 812) of binary: /usr/bin/python",
    "step 3 of the installation: copy the files",
]


@pytest.mark.parametrize("line", NO_METRICS)
def test_lines_that_hold_no_metric(line: str) -> None:
    assert read_series([(1, line)]) == []
