"""The objective of a program: validation first, never training, as a run reads it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from workbench.experiment import Experiment
from workbench.runs.scripts.first_experiment import experiment_for
from workbench.training.programs.printed_metrics import PrintedMetrics, read_line


def objective(folder: Path, source: str) -> tuple[str, str, str | None]:
    """Return the metric, the goal and where it is read: None if it is printed."""
    script = folder / "train.py"
    script.write_text(source)
    experiment = Experiment.from_yaml(experiment_for(script).text)
    source_of = experiment.metric_source
    where = source_of.path or (source_of.kind if source_of.kind == "wandb" else None)
    return experiment.objectives[0].metric, experiment.objectives[0].goal, where


@pytest.mark.parametrize(
    ("source", "metric", "goal"),
    [
        (
            "print(f'train acc {a:.3f}'); print(f'val acc {b:.3f}'); print(f'test acc {c:.3f}')",
            "val_acc",
            "maximize",
        ),
        ("print(f'fit rmse {a:.4f} | held-out rmse {b:.4f}')", "held-out_rmse", "minimize"),
        (
            "def train():\n    print(f'loss: {x:.3f}')\ndef test():\n    print(f'loss: {x:.3f}')\n"
            "    print(f'accuracy: {y:.3f}')\n",
            "accuracy",
            "maximize",
        ),
        (  # Texts that are no statement but a comment are not printed.
            '"""It has a {return: 1}."""\ndef train():\n    print(f\'loss: {x:.3f}\')\n',
            "loss",
            "minimize",
        ),
        (  # How many samples there are is no result.
            "print(f'Train:{len(a)} Validation:{len(b)}')\nprint(f'loss: {x:.3f}')\n",
            "loss",
            "minimize",
        ),
        (
            "data = {'train': train, 'test': test}\nprint(data)\nprint(f'loss: {x:.3f}')\n",
            "loss",
            "minimize",
        ),
        ("print(json.dumps({'eval': {'f1': f1}, 'epoch': 3}))", "eval.f1", "maximize"),
        (  # Names that loops make.
            "def run():\n    r = {}\n"
            "    for k, s in itertools.product(['loss', 'top1'], ['train', 'valid']):\n"
            "        r['%s_%s' % (k, s)] = f(s, k)\n    return r\nr = run()\n"
            "logger.info('\\n' + json.dumps(r, indent=4))\n",
            "top1_valid",
            "maximize",
        ),
        (
            "m = {}\nfor t in [0.1, 0.25]:\n    m[f'valid_acc_{t:.2f}'] = f(t)\n"
            "m['valid_loss'] = l\n"
            "print(' | '.join(f'{k} {v:.3f}' for k, v in sorted(m.items())))\n",
            "valid_acc_0.10",
            "maximize",
        ),
        (
            "logger.info('[%s %03d/%03d] loss %.3f', 'valid', epoch, 10, loss)\n",
            "valid_loss",
            "minimize",
        ),
        (  # The loss of a value function is none of validation data.
            "logger.log_tabular('LossV', average_only=True)\n"
            "logger.log_tabular('EpRet', with_min_and_max=True)\n",
            "AverageEpRet",
            "maximize",
        ),
        (  # A part of the data may be a default.
            "def evaluate(data, kind='Valid'):\n"
            "    print('[{} loss]: {:.5f}'.format(kind, loss))\nevaluate(x)\n",
            "Valid_loss",
            "minimize",
        ),
        (
            "print('16-bits training: {}'.format(a.fp16))\nprint(f'loss: {x:.3f}')\n",
            "loss",
            "minimize",
        ),
        (  # Without the name of a metric, a number that is printed.
            "print('Ep: ', n, '| Ep_r: ', round(reward, 2))\n",
            "Ep_r",
            "maximize",
        ),
        (
            "logger.add({'score': a, 'length': b}, prefix='episode')\nprint(f'loss: {x:.3f}')\n",
            "episode/score",
            "maximize",
        ),
        (
            "from stable_baselines3 import PPO\nmodel = PPO('MlpPolicy', env)\n"
            "model.learn(1000, callback=EvalCallback(env))\n",
            "eval/mean_reward",
            "maximize",
        ),
        (  # Loops over what has no name.
            "for k, v in items():\n    print(k)\nfor a in [()]:\n    print(f'loss: {x:.3f}')\n",
            "loss",
            "minimize",
        ),
        ("print(f'valid elbo: {a:.3f}')", "valid_elbo", "maximize"),
        ("print(f'valid neg_elbo: {a:.3f}')", "valid_neg_elbo", "minimize"),
        (
            "print(f'val_acc={a:.3f} val_loss={b:.3f}')\nif b < best_val_loss: save()\n",
            "val_loss",
            "minimize",
        ),
        (
            "print(f'eval_score: {a:.3f} eval_cost: {b:.3f}')\nif best_cost > cost: save()\n",
            "eval_cost",
            "minimize",
        ),
        (
            "print(f'val_distance_error: {a:.3f}')\nbest_error = max(best_error, error)\n",
            "val_distance_error",
            "maximize",
        ),
        (
            "print(f'Loss: {a:.4f}, Train: {b:.2f}%, Valid: {c:.2f}%, Test: {d:.2f}%')",
            "Valid",
            "maximize",
        ),
        (
            "if a.resume:\n    best_acc = test()\n    print(f'best acc is {best_acc:.2f}')\n"
            "print(f'Test set: Accuracy: {acc:.4f}')\nif best_acc < acc: save()\n",
            "Test_Accuracy",
            "maximize",
        ),
        (
            "print('Test Instance Acc: %f, Class Acc: %f' % (a, b))\n"
            "if acc >= best_class_acc: save()\nif instance >= best_instance_acc: save()\n",
            "Test_Instance_Acc",
            "maximize",
        ),
        (
            "log(Epoch=e, Loss=a, Val=val_acc, Test=b)\nbest = max(best, val_acc)",
            "Val",
            "maximize",
        ),
        (
            "def validate():\n    top1 = AverageMeter('Acc@1', ':6.2f')\n",
            "Acc@1",
            "maximize",
        ),
        (  # A plain name is that of training and of the test, which `check` refuses.
            "def validate():\n"
            "    print(f'Test: [{i}/{n}] Acc@1 {a:.2f}')\n"
            "    print(' * Acc@1 {:.3f}'.format(a))\n"
            "for i in loader:\n    print(f'Epoch: [{e}][{i}/{n}] Acc@1 {a:.2f}')\n"
            "acc = validate()\nbest = max(acc, best)\n",
            "Test_Acc@1",
            "maximize",
        ),
        (
            "m.compile(loss='mse', metrics=['accuracy'])\nm.fit(x, y, validation_split=0.1)",
            "val_accuracy",
            "maximize",
        ),
        (
            "print(f'step={s}, episodic_return={r}')\nraise ValueError(f'test accuracy: {x:.2f}')",
            "episodic_return",
            "maximize",
        ),
        (
            "print(f'Train Loss: {a:.3f} Vali Loss: {b:.3f} Test Loss: {c:.3f}')",
            "Vali_Loss",
            "minimize",
        ),
        ("logger.log_tabular('EpRet', with_min_max=True)", "AverageEpRet", "maximize"),
        (
            "logger.record('eval/mean_reward', x)\nprint(f'loss: {y:.3f}')",
            "eval/mean_reward",
            "maximize",
        ),
        (
            "print(f'Loss {loss:.4f} | Accuracy {val_acc:.4f}')\n"
            "print(f'Test accuracy {acc:.4f}')\n",
            "Accuracy",
            "maximize",
        ),
        (
            "def metrics(labels):\n    return {'eval_accuracy': a, 'eval_loss': b}\n"
            "def write(result):\n    for key in result:\n        print('%s = %s' % (key, 1))\n",
            "eval_accuracy",
            "maximize",
        ),
        # A name for the part of the data comes from the call, the object or the condition.
        (
            "def show(tag, m):\n    text = ', '.join(f'{k}: {v}' for k, v in m.items())\n"
            "    print(f'{tag} metrics: {text}')\n"
            "m = {'f1': a}\nshow('Train', m)\nshow('Val', m)\n",
            "Val_f1",
            "maximize",
        ),
        (
            "def show(header, acc):\n    print('{h:9} accuracy: {acc:.3f}'.format(h=f'({header})',"
            " acc=acc))\nshow('train', a)\nshow('dev', b)\n",
            "dev_accuracy",
            "maximize",
        ),
        (
            "names = ['train', 'val']\nclass Log:\n    def __init__(self, name):\n"
            "        self.name = name\n    def stats(self):\n        return {'mse': a}\n"
            "    def write(self):\n        print('{}: {}'.format(self.name, self.stats()))\n"
            "logs = [Log(names[i]) for i in range(2)]\n",
            "val_mse",
            "minimize",
        ),
        (
            "def run(test):\n    prefix = 'test_' if test else ''\n    log(prefix, x)\n"
            "def log(prefix, x):\n    logger.log_stat(prefix + 'return_mean', x, 1)\n",
            "test_return_mean",
            "maximize",
        ),
        (
            "stats = {'loss': a}\nstats['ErrorRate'] = b\n"
            "logger.log_stats(train_stats=last, valid_stats=stats)\n",
            "valid_ErrorRate",
            "minimize",
        ),
        ("print(f'Step {s:05d} | Validation bpb: {x:.4f} | loss: {y:.4f}')", "bpb", "minimize"),
    ],
)
def test_the_best_printed_metric_is_the_objective(
    source: str, metric: str, goal: str, tmp_path: Path
) -> None:
    name, direction, where = objective(tmp_path, source)
    assert (name.removeprefix("Validation_"), direction, where) == (metric, goal, None)


@pytest.mark.parametrize(
    ("source", "metric", "where"),
    [
        ("import wandb\nwandb.log({'val/acc': a})\nprint(f'loss {x:.3f}')", "val/acc", "wandb"),
        (
            "w = SummaryWriter(log_dir='runs')\nw.add_scalar('Loss/val', x, 1)\n",
            "Loss/val",
            "{folder}",
        ),
        (
            "import lightning\nclass Net:\n    def validation_step(self, batch):\n"
            "        self.log('valid_loss', x, on_step=True)\n",
            "valid_loss_epoch",
            "{folder}/lightning_logs/version_0/metrics.csv",
        ),
        (
            "def evaluate():\n    metric_logger.update(loss=x)\n"
            "stats = {**{f'train_{k}': v for k, v in a}, **{f'test_{k}': v for k, v in b}}\n"
            "with open(os.path.join(out, 'log.txt'), 'a') as f:\n    f.write(json.dumps(stats))\n",
            "test_loss",
            "{folder}/log.txt",
        ),
    ],
)
def test_a_metric_that_no_line_has_is_read_from_what_the_program_writes(
    source: str, metric: str, where: str, tmp_path: Path
) -> None:
    assert objective(tmp_path, source)[0::2] == (metric, where)


@pytest.mark.parametrize(
    ("source", "metric"),
    [
        ("cat('Train loss:', a, '\\n')\ncat('Validation loss:', b, '\\n')", "Validation_loss"),
        (
            "model %>% compile(loss = 'mse', metrics = c('accuracy'))\n"
            "model %>% fit(x, y, validation_split = 0.2)\ncat('Test loss:', s[[1]], '\\n')\n",
            "val_accuracy",
        ),
        (
            "evals <- list(train = a, eval = b)\nxgb.train(list(eta = 0.1, eval_metric = 'auc'))\n",
            "eval-auc",
        ),
    ],
)
def test_the_objective_of_a_program_in_r(source: str, metric: str, tmp_path: Path) -> None:
    script = tmp_path / "train.R"
    script.write_text(source)
    experiment = Experiment.from_yaml(experiment_for(script).text)
    assert experiment.objectives[0].metric == metric


def test_a_monitored_metric_in_a_configuration_is_the_objective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text('{"lr": 0.1, "trainer": {"monitor": "max val_dice"}}')
    Path("train.py").write_text(
        "import argparse, json\np = argparse.ArgumentParser()\np.add_argument('--config')\n"
        "print(f'loss: {x:.3f}')\n"
    )
    objective = Experiment.from_yaml(experiment_for(Path("train.py")).text).objectives[0]
    assert (objective.metric, objective.goal) == ("val_dice", "maximize")


def test_a_value_of_training_data_is_pointed_out(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(f'train loss: {x:.3f}')\n")
    first = experiment_for(script)
    assert "may be measured on training data" in first.text
    assert "may be measured on training data" in first.notes[0]


def test_a_mean_over_classes_comes_before_the_score_of_one(tmp_path: Path) -> None:
    source = (
        "def evaluate(labels):\n    for y in labels:\n        print('f1 = %f' % f1(y))\n"
        "    print('macro recall = %f' % r)\n    print('macro f1 = %f' % f)\n"
        "    print('micro f1 = %f' % g)\n"
    )
    assert objective(tmp_path, source) == ("macro_f1", "maximize", None)


@pytest.mark.parametrize(
    ("line", "says_so"),
    [
        ("train loss {a:.4f} test loss {b:.4f}", True),
        ("train loss {a:.4f} val loss {b:.4f} test loss {c:.4f}", False),
    ],
)
def test_an_objective_that_is_measured_on_test_data_says_so(
    line: str, says_so: bool, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"print(f'{line}')\n")
    first = experiment_for(script)
    assert ("measured on test data" in first.text) == says_so


def test_scalars_in_a_dict_and_metric_objects_of_keras_are_objectives(tmp_path: Path) -> None:
    written = "scalar_dict = {'loss/g/total': a, 'learning_rate': b}\nsummarize(scalar_dict)\n"
    assert objective(tmp_path, written) == ("loss/g/total", "minimize", "{folder}")
    kept = (
        "m = tf.keras.metrics.Accuracy('eval/top_1_accuracy')\nlogging.info('%s = %f', m.name, x)\n"
    )
    assert objective(tmp_path, kept) == ("eval/top_1_accuracy", "maximize", None)


@pytest.mark.parametrize(
    ("source", "metric"),
    [
        ("w = csv.writer(open('log.csv', 'w'))\nw.writerow(['epoch', 'val_loss'])\n", "val_loss"),
        (
            "w = csv.DictWriter(open('log.csv', 'w'), fieldnames=['epoch', 'dev_f1'])\n",
            "dev_f1",
        ),
        ("w = csv.DictWriter(open('log.csv', 'w'), ['epoch', 'val_loss'])\n", "val_loss"),
        (
            "names = ['epoch', 'val_f1']\nw = csv.DictWriter(open(name + '.csv', 'w'), names)\n",
            "val_f1",
        ),
        (
            "w = csv.writer(open('a.csv', 'w'))\nnames = ['val_mse']\nw.writerow(names)\n",
            "val_mse",
        ),
        (
            "w.writerow(dict(epoch=1, val_rmse=0.5))\nopen(f'{name}.csv')\n",
            "val_rmse",
        ),
        (
            "rows.append({'epoch': 1, 'val_mae': 0.5})\npd.DataFrame(rows).to_csv('history.csv')\n",
            "val_mae",
        ),
        ("table = pd.DataFrame(columns=['epoch', 'dev_acc'])\ntable.to_csv('a.csv')\n", "dev_acc"),
        (
            "results = {}\nresults['val_iou'] = 0.5\n"
            "with open(name + '.json', 'w') as file:\n    file.write(json.dumps(results))\n",
            "val_iou",
        ),
        (
            "Path('a.json').write_text(json.dumps({'epoch': 1, 'val_dice': 0.5}))\n",
            "val_dice",
        ),
        ("f = open('a.csv', 'a')\nf.write('epoch,loss,val_auc\\n')\n", "val_auc"),
        (
            "keys = ['train/box_loss', 'metrics/mAP_0.5', 'val/box_loss']\nopen('results.csv')\n",
            "metrics/mAP_0.5",
        ),
    ],
)
def test_a_column_of_a_file_is_the_objective_if_no_line_has_one(
    source: str, metric: str, tmp_path: Path
) -> None:
    assert objective(tmp_path, source)[0] == metric
    text = experiment_for(tmp_path / "train.py").text
    assert f"{metric} is in a file and in no line" in text
    assert "workdir: fresh" in text


def test_keys_that_only_one_branch_gives_are_left_out(tmp_path: Path) -> None:
    source = """
def score():
    if regression:
        own = {"val_mae": a}
    else:
        own = {"val_accuracy": b}
    print({"val_loss": c, **own})
"""
    assert objective(tmp_path, source)[:2] == ("val_loss", "minimize")


def test_a_variable_that_is_only_named_as_data_is_no_metric(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def show():\n    print(f'DEV={x}')\n")
    source = "import tools\nprint(f'loss: {a:.2f} test_accuracy: {b:.2f}')\n"
    assert objective(tmp_path, source)[:2] == ("test_accuracy", "maximize")


def test_variables_that_julia_prints_are_metrics(tmp_path: Path) -> None:
    script = tmp_path / "train.jl"
    script.write_text('acc = f(x)\n@info "logging:" epoch loss test_acc\n')
    assert Experiment.from_yaml(experiment_for(script).text).objectives[0].metric == "test_acc"


def test_a_line_that_is_only_printed_on_improvement_comes_last(tmp_path: Path) -> None:
    source = """
for epoch in range(9):
    if vloss < best:
        print(f"Validation loss decreased ({best:.6f} --> {vloss:.6f}).  Saving model ...")
        best = vloss
    print(f"Epoch {epoch} train loss {train_loss:.3f} eval loss {vloss:.3f}")
"""
    assert objective(tmp_path, source)[:2] == ("eval_loss", "minimize")


def test_a_loop_prints_what_another_module_measures(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "def evaluate(batch):\n    logs.append({'MRR': 1 / rank, 'MR': rank, 'time': 3})\n"
    )
    source = """
import model
def show(mode, step, metrics):
    for metric in metrics:
        print('%s %s at step %d: %f' % (mode, metric, step, metrics[metric]))
show('Train', 1, run())
show('Valid', 1, run())
"""
    assert objective(tmp_path, source)[:2] == ("Valid_MRR", "maximize")


def test_pairs_that_a_lambda_joins_are_metrics(tmp_path: Path) -> None:
    source = """
pairs = [('G', g_loss), ('FID', fid)]
pairs = [pair for pair in pairs if pair[1] is not None]
print(' | '.join(map(lambda pair: f'{pair[0]}: {pair[1]:.2f}', pairs)))
"""
    assert objective(tmp_path, source)[:2] == ("FID", "minimize")


def test_a_callback_of_lightning_names_the_metric(tmp_path: Path) -> None:
    source = """
import pytorch_lightning as pl
def wrap_up(pl_module, phase, value):
    pl_module.log(f'{phase}/the_metric', value)
keep = pl.callbacks.ModelCheckpoint(monitor='val/the_metric', mode='max')
"""
    metric, goal, where = objective(tmp_path, source)
    assert (metric, goal) == ("val/the_metric", "maximize")
    assert where is not None
    assert where.endswith("metrics.csv")


def test_a_configuration_of_lightning_names_the_metric(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "train.yaml").write_text(
        "trainer:\n  callbacks:\n    - init_args:\n        monitor: 'val/w_rmse'  # kept by\n"
        "        mode: min\nmodel: {lr: 0.1}\n"
    )
    source = "from pytorch_lightning.cli import LightningCLI\nLightningCLI(run=False)\n"
    assert objective(tmp_path, source)[:2] == ("val/w_rmse", "minimize")


@pytest.mark.parametrize(
    ("source", "metric"),
    [
        ("print(f'Epoch {e}, TEER/TAcc {a:.2f}, VEER {b:.4f}, TLOSS {c:.4f}')", "VEER"),
        ("print(f'tloss: {a:.3f} vloss: {b:.3f}')", "vloss"),
        ("print(f'Initial loss: {a:.3f}'); print(f'loss: {b:.3f}')", "loss"),
        ("print(f'{\"Current_accuracy\":17s}: {a:.3f}')", "Current_accuracy"),
        (
            "import json\nstats = {'val_loss': a, 'epoch': e}\n"
            "json.dump(stats, open('stats.json', 'w'))\n",
            "val_loss",
        ),
        (
            "def build():\n    for phase in ['train', 'dev']:\n"
            "        loaders[phase] = load(phase)\n"
            "def run(loaders):\n    for phase, loader in loaders.items():\n"
            "        print('Step {} [{}] Loss: {}'.format(step, phase, loss))\n",
            "dev_Loss",
        ),
        (  # A Trainer without data for an evaluation does not evaluate, whatever others do.
            "import transformers\nimport other\n"
            "transformers.Trainer(model=m, args=a, train_dataset=d).train()\n",
            "loss",
        ),
    ],
)
def test_names_of_metrics_in_sources(source: str, metric: str, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "import transformers\ndef fit(d):\n"
        "    transformers.Trainer(model=m, args=a, train_dataset=d, eval_dataset=d).train()\n"
    )
    assert objective(tmp_path, source)[0] == metric


def test_keras_prints_what_another_module_compiles(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "def build(lr):\n    model = Model()\n"
        "    model.compile(Adam(lr), loss='mse', metrics=['accuracy'])\n    return model\n"
    )
    source = "from net import build\nbuild(0.1).fit(x, y, validation_data=(a, b))\n"
    assert objective(tmp_path, source) == ("val_accuracy", "maximize", None)


def test_a_printed_metric_comes_before_one_in_a_file(tmp_path: Path) -> None:
    source = (
        "def test(loader):\n    logger.info('top-1 acc: {:.2f}'.format(acc))\n    return acc\n"
        "test_acc = test(x)\nwriter.add_scalar('test/1.test_acc', test_acc, epoch)\n"
        "best_acc = max(test_acc, best_acc)\n"
    )
    assert objective(tmp_path, source) == ("top-1_acc", "maximize", None)


def names_when_run(source: str) -> set[str]:
    """Run a program, and return the names that a run reads in its lines."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "train.py", "exec"), {"__name__": "__main__"})
    reader = PrintedMetrics()
    lines = re.split(r"[\r\n]", output.getvalue())
    return {name for line in lines for name in reader.read(line.encode())}


@pytest.mark.parametrize(
    ("source", "metric"),
    [
        ("a = 0.5\nprint('Epoch ' + str(1) + ': val loss = ' + str(a))\n", "val_loss"),
        ("print('val_acc %(acc).4f lr %(lr).1e' % {'acc': 0.5, 'lr': 0.1})\n", "val_acc"),
        (
            "def run(phase):\n    print('{} Acc: {:.4f}'.format(phase.upper(), 0.5))\n"
            "for phase in ['train', 'val']:\n    run(phase)\n",
            "VAL_Acc",
        ),
        (
            "blue = lambda x: '\\033[94m' + x + '\\033[0m'\n"
            "print('[%d/%d] train accuracy: %f' % (1, 2, 0.5))\n"
            "print('[%d/%d] %s accuracy: %f' % (1, 2, blue('test'), 0.5))\n",
            "test_accuracy",
        ),
        (
            "for k, v in zip(['precision', 'f1'], [0.5, 0.4]):\n"
            "    print('test %s: %.4f' % (k, v))\n",
            "test_f1",
        ),
        ("for i, k in enumerate([5, 10]):\n    print(f'Recall@{k}: {0.5:.4f}')\n", "Recall@5"),
        (
            "def evaluate():\n    res = {}\n    res['mrr'] = 0.5\n    return res\n"
            "for k, v in evaluate().items():\n    print(f'Valid {k}: {v:.4f}')\n",
            "Valid_mrr",
        ),
        (
            "def evaluate():\n    return {'loss': 0.5, 'acc': 0.4}\n"
            "log = {'epoch': 1}\nlog.update({'val_' + k: v for k, v in evaluate().items()})\n"
            "print(log)\n",
            "val_acc",
        ),
        (
            "def evaluate():\n    return {'loss': 0.5, 'acc': 0.4}\ntest = evaluate()\n"
            "print({'epoch': 1, **{f'test_{k}': v for k, v in test.items()}})\n",
            "test_acc",
        ),
        (
            "def write(prefix, values):\n"
            "    print(prefix + ' ' + ' '.join('%s: %.4f' % (k, v) for k, v in values.items()))\n"
            "write('train', {'loss': 0.5})\nwrite('valid', {'loss': 0.5, 'acc': 0.4})\n",
            "valid_acc",
        ),
        (
            "columns = ['ep', 'tr_loss', 'te_loss', 'te_acc']\n"
            "print('  '.join('%10s' for _ in columns) % tuple(columns))\n"
            "print('  '.join('%10.4f' % v for v in [1, 0.5, 0.4, 0.3]))\n",
            "te_acc",
        ),
        (
            "import sys\nfrom tqdm import tqdm\n"
            "bar = tqdm(range(2), file=sys.stdout, desc='Valid')\n"
            "for step in bar:\n    bar.set_postfix(loss=0.5)\n",
            "Valid_loss",
        ),
        (  # A name that no list has, of validation data.
            "print('| train_loss {:5.4f} | valid rse {:5.4f}'.format(0.5, 0.4))\n",
            "valid_rse",
        ),
        (
            "print('Epoch: {} Loss: {:.3f}'.format(1, 0.5))\n"
            "print('Epoch: {} Average loss: {:.3f}'.format(1, 0.5))\n",
            "Average_loss",
        ),
        (
            "best_bleu4, bleu4 = 0.1, 0.2\nbest_bleu4 = max(bleu4, best_bleu4)\n"
            "print(f' * TOP-5 ACCURACY - {0.5:.3f}, BLEU-4 - {bleu4}')\n",
            "BLEU-4",
        ),
        ("print(f'dev EM: {0.5:.3f} / dev F1: {0.4:.3f}')\n", "dev_EM"),
        ("print('Ep_i \\t{}, the ep_r is \\t{:0.2f}'.format(1, 0.5))\n", "ep_r"),
        (
            "dev_f1, max_dev_f1 = 0.4, 0.3\nprint(f'dev EM: {0.5:.3f} / dev F1: {dev_f1:.3f}')\n"
            "if dev_f1 > max_dev_f1:\n    max_dev_f1 = dev_f1\n",
            "dev_F1",
        ),
    ],
)
def test_the_objective_is_a_name_that_a_run_reads(source: str, metric: str, tmp_path: Path) -> None:
    assert objective(tmp_path, source)[0] == metric
    assert metric in names_when_run(source)


def test_columns_of_a_table_are_names(tmp_path: Path) -> None:
    source = "print(tabulate([values], columns, tablefmt='simple'))\n"
    columns = "columns = ['ep', 'tr_loss', 'te_acc']\n"
    reader = PrintedMetrics()
    lines = ("  ep    tr_loss    te_acc", "----  ---------  --------", "   1     0.5000    0.4000")
    read = {name for line in lines for name in reader.read(line.encode())}
    assert objective(tmp_path, columns + source)[0] == "te_acc"
    assert "te_acc" in read


@pytest.mark.parametrize(
    ("source", "metric", "goal", "line"),
    [
        (
            "import xgboost\n"
            "p = {'objective': 'binary:logistic', 'eval_metric': ['error', 'auc']}\n"
            "xgboost.train(p, a, evals=[(a, 'train'), (b, 'valid')])\n",
            "valid-auc",
            "maximize",
            "[0]\ttrain-auc:0.91\tvalid-auc:0.85",
        ),
        (
            "from xgboost import XGBRegressor\nm = XGBRegressor(n_estimators=50)\n"
            "m.fit(x, y, eval_set=[(x, y), (xv, yv)])\n",
            "validation_1-rmse",
            "minimize",
            "[0]\tvalidation_0-rmse:0.5\tvalidation_1-rmse:0.61",
        ),
        (
            "import lightgbm as lgb\nm = lgb.LGBMClassifier()\n"
            "m.fit(x, y, eval_set=[(xv, yv)], eval_metric='auc')\n",
            "valid_0_auc",
            "maximize",
            "[10]\tvalid_0's auc: 0.91",
        ),
        (
            "import lightgbm as lgb\nb = lgb.train({'objective': 'regression'}, a,"
            " valid_sets=[a, v], valid_names=['train', 'held'])\n",
            "held_l2",
            "minimize",
            "[10]\ttrain's l2: 0.5\theld's l2: 0.61",
        ),
        (
            "from catboost import CatBoostClassifier\nm = CatBoostClassifier(eval_metric='AUC')\n"
            "m.fit(x, y, eval_set=(xv, yv))\n",
            "test",
            "maximize",
            "0:\ttest: 0.68\tbest: 0.68 (0)\ttotal: 2ms\tremaining: 1s",
        ),
        (
            "from skorch import NeuralNetRegressor\nnet = NeuralNetRegressor(M)\nnet.fit(x, y)\n",
            "valid_loss",
            "minimize",
            "  epoch    train_loss    valid_loss     dur\n"
            "-------  ------------  ------------  ------\n"
            "      1        0.6905        0.6749  0.0300",
        ),
        (
            "from fastai.vision.all import *\nlearn = vision_learner(d, net, metrics=[accuracy])\n"
            "learn.fine_tune(4)\n",
            "valid_loss",
            "minimize",
            "epoch     train_loss  valid_loss  accuracy  time    \n"
            "0         0.500000    0.400000    0.900000  00:03     ",
        ),
    ],
)
def test_what_libraries_print_of_data_for_validation_is_the_objective(
    source: str, metric: str, goal: str, line: str, tmp_path: Path
) -> None:
    assert objective(tmp_path, source) == (metric, goal, None)
    reader = PrintedMetrics([metric])
    assert metric in {name for part in line.splitlines() for name in reader.read(part.encode())}


def test_a_library_that_validates_nothing_has_no_objective(tmp_path: Path) -> None:
    source = (
        "from skorch import NeuralNetClassifier\n"
        "NeuralNetClassifier(M, train_split=None).fit(x, y)\n"
        "print(f'held-out accuracy {a:.3f}')\n"
    )
    assert objective(tmp_path, source)[0] == "held-out_accuracy"
    quiet = "import xgboost as xgb\nxgb.train(p, a, evals=[(b, 'valid')], verbose_eval=False)\n"
    assert objective(tmp_path, quiet + "print(f'mae {a:.3f}')\n")[0] == "mae"


def test_a_list_is_the_objective_if_the_program_prints_nothing_else(tmp_path: Path) -> None:
    source = (
        "train_losses, val_losses = [], []\n"
        "for loss in (0.5, 0.25):\n    train_losses.append(loss)\n    val_losses.append(loss + 1)\n"
        "print('train losses:', train_losses)\nprint('val losses:', val_losses)\n"
    )
    assert objective(tmp_path, source)[:2] == ("val_losses", "minimize")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, "train.py", "exec"), {})
    reader = PrintedMetrics(["val_losses"])
    values = [reader.read(line.encode()) for line in printed.getvalue().splitlines()]
    assert values[-1] == {"val_losses": 1.25}
    scalar = f"{source}print(f'test mae {{1.0:.2f}}')\n"
    assert objective(tmp_path, scalar)[0] == "test_mae"


@pytest.mark.parametrize(
    ("option", "goal"),
    [
        ("eval_score_higher_is_better: false", "minimize"),
        ("eval_score_higher_is_better: true", "maximize"),
        ("eval_score_lower_is_better: true", "minimize"),
        ("price_higher_is_better: false", "maximize"),
    ],
)
def test_a_configuration_says_which_score_is_better(
    option: str, goal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf.yaml").write_text(f"lr: 0.1\nbatch_size: 8\n{option}\n")
    source = (
        "import yaml\nconf = yaml.safe_load(open('conf.yaml'))\n"
        "print(f'Evaluation score: {score:.3f}')\n"
    )
    assert objective(Path(), source)[:2] == ("Evaluation_score", goal)


def test_the_shape_of_data_is_no_metric(tmp_path: Path) -> None:
    source = (
        "print('train:', a.shape)\nprint('val:', b.size(), c.shape[0])\n"
        "print('test:', len(b))\nprint(f'loss {x:.3f}')\n"
    )
    assert objective(tmp_path, source)[0] == "loss"


def test_curves_of_one_picture_have_names_of_their_own(tmp_path: Path) -> None:
    source = (
        "class Solver:\n    def write_log(self, name, values):\n"
        "        values = {k: v for k, v in values.items() if v is not None}\n"
        "        self.log.add_scalars(name, values, self.step)\n"
        "    def validate(self):\n        for task in ['att', 'ctc']:\n"
        "            self.write_log('wer', {'dev_' + task: wer[task]})\n"
        "    def train(self):\n        self.write_log('wer', {'tr': wer})\n"
        "        self.write_log('emb_loss', {'tr': loss})\n"
    )
    assert objective(tmp_path, source)[:2] == ("wer/dev_att", "minimize")


@pytest.mark.parametrize(
    ("source", "metric", "goal"),
    [
        (  # by the loader that a loop goes over
            "for x in train_loader:\n    total += criterion(x)\nprint(f'Loss: {total:.3f}')\n"
            "for x in val_loader:\n    correct += hits(net(x))\n"
            "print(f'Result: {100 * correct / n:.2f}%, accuracy {correct / n:.3f}')\n",
            "accuracy",
            "maximize",
        ),
        (  # by what is called, also through a tuple
            "train_loss, train_acc = run(a)\nerr, score = evaluate(net, data)\n"
            "print(f'acc {train_acc:.3f}')\nprint(f'error {err:.3f}')\n",
            "error",
            "minimize",
        ),
        (  # by where no gradients are computed
            "def main():\n    for x in data:\n        a = step(x)\n        print(f'mae {a:.3f}')\n"
            "    with torch.no_grad():\n        b = net(x)\n        print(f'rmse {b:.3f}')\n",
            "rmse",
            "minimize",
        ),
        (  # the function of an event, in one that trains
            "def do_train(cfg):\n    def log_loss(e):\n        print(f'Acc: {e.acc:.3f}')\n"
            "    def log_validation_results(e):\n        print(f'mAP: {e.map:.3f}')\n",
            "mAP",
            "maximize",
        ),
        (  # a value of a dict is printed, not the dict
            "def estimate():\n    return {'train': a, 'val': b}\nlosses = estimate()\n"
            "print(f\"train loss {losses['train']:.4f}, val loss {losses['val']:.4f}\")\n",
            "val_loss",
            "minimize",
        ),
        (  # what a value is says in which direction it is better
            "print(f\"train_R {log['avg_reward']:.2f}\\teval_R {log_eval['avg_reward']:.2f}\")",
            "eval_R",
            "maximize",
        ),
        (  # a statistic of the data is no metric
            "print('mean in train: {}'.format(train_target.mean()))\n"
            "print('mean in valid: {}'.format(valid_target.mean()))\n"
            "print('ROC_AUC on validation is {:.3f}'.format(score))\n",
            "validation_ROC_AUC",
            "maximize",
        ),
        (
            "print('loss %.3f, acc %.2f%%' % (loss, 100 * acc))",
            "acc",
            "maximize",
        ),
        (
            "model.compile(optimizer='adam', loss='mse')\n"
            "model.fit_generator(batches, validation_data=others)\n",
            "val_loss",
            "minimize",
        ),
    ],
)
def test_what_a_value_is_computed_from_says_its_data(
    source: str, metric: str, goal: str, tmp_path: Path
) -> None:
    assert objective(tmp_path, source)[:2] == (metric, goal)


def test_a_name_with_several_data_is_no_better_than_what_is_clear(tmp_path: Path) -> None:
    source = (
        "form = 'Iter {:d} Loss: {:.4f}'\nfor x in train_loader:\n    a = loss(x)\n"
        "    print(form.format(1, a))\n    print('Iter %d Loss: %.4f' % (1, a))\n"
        "for x in val_loader:\n    b = loss(x)\n    writer.add_scalar('loss/val_loss', b)\n"
        "    print('Iter %d Loss: %.4f' % (1, b))\n"
    )
    assert objective(tmp_path, source)[0] == "loss/val_loss"


def test_an_own_callback_names_the_metric_if_nothing_else_does(tmp_path: Path) -> None:
    source = (
        "class EarlyStopping:\n    def __init__(self, monitor, mode): self.monitor = monitor\n"
        "stop = EarlyStopping(monitor='valid_f1', mode='max')\nprint(f'loss {a:.3f}')\n"
    )
    assert objective(tmp_path, source)[:2] == ("valid_f1", "maximize")
    reported = f"{source}print(f'valid f1: {{b:.3f}}')\n"
    assert objective(tmp_path, reported)[:2] == ("valid_f1", "maximize")


EVALUATE = """\
def evaluate(model):
    acc = correct / total
    print(f"val acc {100 * acc:.2f} val loss {loss / n:.3f} val f1 {f1:.3f}")
    return RETURNED


"""


@pytest.mark.parametrize(
    ("source", "metric", "goal"),
    [
        (  # A name that says nothing.
            EVALUATE.replace("RETURNED", "loss / n, 100.0 * acc, f1")
            + "a, b, c = evaluate(net)\nif c > record:\n    record = c\n",
            "val_f1",
            "maximize",
        ),
        (
            EVALUATE.replace("RETURNED", "{'one': loss / n, 'two': f1}")
            + "r = evaluate(net)\nrecord = min(r['one'], record)\n",
            "val_loss",
            "minimize",
        ),
        (
            EVALUATE.replace("RETURNED", "acc, loss / n")
            + "seen = []\nscore, value = evaluate(net)\n"
            + "if not seen or value <= min(seen): save()\nseen.append(value)\n",
            "val_loss",
            "minimize",
        ),
        (  # The value of a share and that in percent are the same.
            EVALUATE.replace("RETURNED", "correct / total")
            + "x = evaluate(net)\nif record < x:\n    record = x\n",
            "val_acc",
            "maximize",
        ),
        (  # A value that is given to the functions that print it and compare it.
            "def show(epoch, x, y):\n    print(f'val acc {x:.3f} val f1 {y:.3f}')\n"
            "def keep(value):\n    global record\n    if value > record:\n        record = value\n"
            "one, two = run()\nshow(3, one, two)\nkeep(two)\n",
            "val_f1",
            "maximize",
        ),
        (
            "early_stopping = EarlyStopping(patience=3)\n"
            "print(f'val acc {a:.3f} val loss {b:.3f}')\nearly_stopping(b, model)\n",
            "val_loss",
            "minimize",
        ),
        (  # Places with numbers, of which one had a list before.
            "train_loss = []\ntrain_loss = np.average(train_loss)\nvali = validate()\n"
            "print('{0} | Vali Acc: {3:.3f} Train Loss: {1:.7f} Vali Loss: {2:.7f}'"
            ".format(epoch, train_loss, vali, acc))\nstopper.early_stop(vali, model)\n",
            "Vali_Loss",
            "minimize",
        ),
        (  # The last item of a list that is filled later.
            "losses = []\nlosses.append(train())\nprint(f'val loss {losses[-1]:.3f} acc {b:.3f}')\n"
            "if losses[-1] < low:\n    low = losses[-1]\n",
            "val_loss",
            "minimize",
        ),
        (  # The same variable has two values.
            "loss = train()\nprint(f'train loss {loss:.3f}')\n"
            "loss = evaluate()\nprint(f'loss {loss:.3f}')\nif loss < low:\n    low = loss\n",
            "loss",
            "minimize",
        ),
        (  # Training data only: the loss of an epoch, before that of a batch.
            "print(f'Loss: {loss.item() / n:.3f}')\navg = train_loss / len(train_loader)\n"
            "print(f'Average loss: {avg:.3f}')\nif avg < low:\n    low = avg\n",
            "Average_loss",
            "minimize",
        ),
        (  # Validation data come before what the program keeps its model by.
            "print(f'train loss {a:.3f} val acc {b:.3f}')\nif a < low:\n    low = a\n",
            "val_acc",
            "maximize",
        ),
    ],
)
def test_the_value_that_a_program_keeps_its_best_model_by_is_the_objective(
    source: str, metric: str, goal: str, tmp_path: Path
) -> None:
    assert objective(tmp_path, source)[:2] == (metric, goal)


def test_a_header_in_a_call_is_read_where_tuples_are_unpacked(tmp_path: Path) -> None:
    source = """
inputs, targets = inputs.cuda(), targets.cuda()
logwriter = csv.writer(open(name + ".csv", "a"))
logwriter.writerow(["epoch", "train loss", "test loss", "test acc"])
"""
    assert objective(tmp_path, source)[0] == "test acc"


def test_of_two_networks_against_each_other_no_loss_is_good(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    source = "print(f'D/loss_real {a:.3f} D/loss_fake {b:.3f} G/loss_rec {c:.3f}')\n"
    script.write_text(source)
    experiment = experiment_for(script)
    assert "{metric: G/loss_rec, goal: minimize}" in experiment.text
    assert "against each other" in " ".join(experiment.notes) + experiment.text
    script.write_text(source + "print(f'val fid {d:.2f}')\n")
    experiment = experiment_for(script)
    assert "{metric: val_fid, goal: minimize}" in experiment.text
    assert "against each other" not in " ".join(experiment.notes) + experiment.text


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_text_that_says_nan_itself_is_read(word: str, tmp_path: Path) -> None:
    source = f"print('best: {word}, val acc: %.3f' % acc)\nif acc > top:\n    top = acc\n"
    assert objective(tmp_path, source)[:2] == ("val_acc", "maximize")


@pytest.mark.parametrize(
    ("source", "metric", "goal"),
    [
        (  # A name in a variable, and a text that is made of it.
            "METRIC = 'auroc'\nmonitor = f'val/{METRIC}'\n"
            "class Net(pl.LightningModule):\n    def shared(self, stage):\n"
            "        self.log(f'{stage}/loss', a)\n        self.log(f'{stage}/{METRIC}', b)\n"
            "    def training_step(self, x):\n        self.shared('train')\n"
            "    def validation_step(self, x):\n        self.shared('val')\n"
            "ModelCheckpoint(monitor=monitor, mode='max')\n",
            "val/auroc",
            "maximize",
        ),
        (
            "def run(name='val_f1'):\n    watched = 'val_f1'\n"
            "    EarlyStopping(monitor=watched, mode='max')\n"
            "    self.log('val_f1', x)\n    self.log('val_loss', y)\n",
            "val_f1",
            "maximize",
        ),
    ],
)
def test_a_monitored_name_may_be_a_variable(
    source: str, metric: str, goal: str, tmp_path: Path
) -> None:
    found = objective(tmp_path, f"import pytorch_lightning as pl\n{source}")
    assert found[:2] == (metric, goal)


def test_a_number_that_the_best_model_is_kept_by_may_have_any_name(tmp_path: Path) -> None:
    source = (
        "best = 0\nfor epoch in range(3):\n    a, quality = step(), measure()\n"
        "    print(f'{epoch}: loss {a:.3f} goodness: {quality:.3f}')\n"
        "    if quality > best:\n        best = quality\n"
    )
    assert objective(tmp_path, source)[:2] == ("goodness", "maximize")


def test_what_an_evaluation_measures_is_known_by_its_variable(tmp_path: Path) -> None:
    source = (
        "def eval_policy(n=10):\n    avg_reward = play() / n\n"
        "    print(f'Evaluation over {n} episodes: {avg_reward:.3f}')\n"
        "print(f'Step {t} Reward: {episode_reward:.3f}')\n"
    )
    assert objective(tmp_path, source)[:2] == ("Evaluation", "maximize")


def test_a_metric_of_a_switch_that_is_off_comes_last(tmp_path: Path) -> None:
    declared = (
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--{name}', action='store_true')\nargs = p.parse_args()\n"
        "if args.{name}:\n    print(f'test auc {{a:.3f}}')\n"
        "else:\n    print(f'test accuracy {{b:.3f}}')\n"
    )
    assert objective(tmp_path, declared.format(name="rival"))[0] == "test_accuracy"
    # Those of an evaluation are turned on in the command.
    assert objective(tmp_path, declared.format(name="do_eval"))[0] == "test_auc"


def test_a_measure_of_training_data_comes_with_a_note(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "for e in range(2):\n    rmse_train = fit()\n    print(f'rmse {rmse_train:.4f}')\n"
    )
    first = experiment_for(script)
    assert Experiment.from_yaml(first.text).objectives[0].metric == "rmse"
    assert any("training data" in note for note in first.notes)


def test_an_option_that_is_printed_is_no_metric(tmp_path: Path) -> None:
    source = "print(f'Preconditioning & loss: {args.kind}')\nprint(f'train acc: {acc:.3f}')\n"
    assert objective(tmp_path, source)[0] == "train_acc"


@pytest.mark.parametrize(
    ("evaluator", "line"),
    [
        ("Accuracy", "Epoch(val) [1][625/625]    accuracy/top1: 45.1000  data_time: 0.0022"),
        ("CocoMetric", "Epoch(val) [1][9/9]    coco/bbox_mAP: 0.3610  coco/bbox_mAP_50: 0.5"),
        ("IoUMetric", "Iter(val) [500/500]    aAcc: 80.0000  mIoU: 45.2000  mAcc: 50.0000"),
    ],
)
def test_the_measure_of_an_evaluator_of_mmengine_is_read_from_its_line(
    evaluator: str, line: str, tmp_path: Path
) -> None:
    (tmp_path / "conf.py").write_text(
        f"val_evaluator = dict(type={evaluator!r})\noptim = dict(lr=0.1)\n"
    )
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\nfrom mmengine.config import DictAction\np = argparse.ArgumentParser()\n"
        "p.add_argument('config')\n"
        "p.add_argument('--cfg-options', nargs='+', action=DictAction)\n"
    )
    (tmp_path / "README.md").write_text("    python train.py conf.py\n")
    objective = Experiment.from_yaml(experiment_for(script).text).objectives[0]
    assert objective.metric in read_line(f"01/01 10:00:00 - mmengine - INFO - {line}".encode())
    assert objective.goal == "maximize"


def test_precision_comes_after_a_score_of_both_kinds_of_mistakes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "print(f'val precision: {p:.3f} val recall: {r:.3f} val mAP: {m:.3f} val loss: {x:.3f}')\n"
    )
    assert Experiment.from_yaml(experiment_for(script).text).objectives[0].metric == "val_mAP"


@pytest.mark.parametrize(
    ("lines", "metric"),
    [
        (
            "for epoch in range(9):\n    print(f'Test set: Accuracy: {b:.2f}%')\n"
            "print(f'Final Validation/Test Loss: {c:.4f}')\n",
            "Test_Accuracy",
        ),
        (
            "for step in range(9):\n    wandb.log({'val/loss': a})\n"
            "wandb.log({'final/val/loss': b})\n",
            "val/loss",
        ),
        (
            "print('Validation Total Loss: {:.4f}, Validation Energy Loss: {:.4f}'.format(a, b))\n",
            "Validation_Total_Loss",
        ),
    ],
)
def test_the_sum_and_the_value_of_each_epoch_come_first(
    lines: str, metric: str, tmp_path: Path
) -> None:
    assert objective(tmp_path, lines)[0] == metric


def test_a_dict_in_a_dict_that_is_logged_counts(tmp_path: Path) -> None:
    source = (
        "import wandb\nlogs = {'actor_loss': loss}\nif step % 100 == 0:\n"
        "    logs['eval_avg_return'] = evaluate()\nwandb.log({'speed': speed, **logs})\n"
    )
    assert objective(tmp_path, source) == ("eval_avg_return", "maximize", "wandb")


def test_a_step_of_lightning_may_name_the_data_it_is_called_with(tmp_path: Path) -> None:
    source = (
        "import pytorch_lightning as pl\nclass Net(pl.LightningModule):\n"
        "    def training_step(self, batch, index):\n"
        "        result = self._step(batch, index, 'train')\n        self.log_dict(result)\n"
        "    def validation_step(self, batch, index):\n"
        "        result = self._step(batch, index, 'val')\n        self.log_dict(result)\n"
        "    def _step(self, batch, index, prefix):\n"
        "        return {f'{prefix}_loss': self(batch)}\npl.Trainer().fit(Net())\n"
    )
    assert objective(tmp_path, source)[:2] == ("val_loss", "minimize")


@pytest.mark.parametrize(
    "printed",
    [
        "print(f'val rmse {rmse:.3f} (best {best:.3f}){star}')",
        "print('val rmse %.3f%s' % (rmse, star))",
        "print('val rmse {:.3f}{}'.format(rmse, star))",
        "print('val rmse ' + str(rmse) + star)",
        'print(f\'val rmse {rmse:.3f}{" *" if rmse < best else ""}\')',
    ],
)
def test_a_mark_behind_a_value_is_no_part_of_it(printed: str, tmp_path: Path) -> None:
    source = (
        "best = 9\nfor epoch in range(9):\n    train()\n    rmse, star = validate(), ''\n"
        "    if rmse < best:\n        best, star = rmse, ' *'\n"
        f"    print(f'train mse {{mse:.3f}}')\n    {printed}\n"
    )
    assert objective(tmp_path, source)[:2] == ("val_rmse", "minimize")


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (
            "f\"{'Round':>6} {'Train NLL':>12} {'Valid NLL':>12} {'Time':>8}\"",
            "f'{n:6d} {a:12.4f} {b:12.4f} {c:7.2f}s'",
        ),
        (
            "'%6s %12s %12s' % ('Round', 'Train NLL', 'Valid NLL')",
            "'%6d %12.4f %12.4f' % (n, a, b)",
        ),
        (
            "'{:<8}{:>12}{:>12}'.format('Round', 'Train NLL', 'Valid NLL')",
            "'{:<8}{:>12.4f}{:>12.4f}'.format(n, a, b)",
        ),
        (
            "'round'.rjust(6), 'train nll'.rjust(12), 'valid nll'.rjust(12)",
            "f'{n:6d} {a:12.4f} {b:12.4f}'",
        ),
        ("'round | train nll | valid nll'", "f'{n:5d} | {a:9.4f} | {b:9.4f}'"),
    ],
)
def test_a_header_names_the_values_of_the_rows_below_it(
    header: str, row: str, tmp_path: Path
) -> None:
    source = (
        f"print({header})\nprint('-' * 40)\nfor n in range(9):\n    train()\n"
        f"    print({row})\nprint(f'Test NLL = {{test:.4f}}')\n"
    )
    name, goal = objective(tmp_path, source)[:2]
    assert (name.lower(), goal) == ("valid_nll", "minimize")


@pytest.mark.parametrize(
    ("last", "metric"), [("training=False", "Best_validation_ppl"), ("rows=valid", "perplexity")]
)
def test_what_a_function_prints_that_also_trains_is_not_the_objective(
    last: str, metric: str, tmp_path: Path
) -> None:
    source = (
        "def run(rows, training):\n    ppl = measure(rows)\n    print(f'perplexity: {ppl:.3f}')\n"
        "    return ppl\ndef main():\n    best = 1e9\n    for epoch in range(3):\n"
        f"        run(data, training=True)\n        ppl = run(data, {last})\n"
        "        if ppl < best:\n            best = ppl\n"
        "        print(f'Best validation ppl {best:.3f}')\nmain()\n"
    )
    assert objective(tmp_path, source)[:2] == (metric, "minimize")


def test_scores_that_fill_a_line_of_a_variable_are_maximized(tmp_path: Path) -> None:
    source = (
        "def test():\n    accs = []\n    for mask in masks:\n        accs.append(hits(mask))\n"
        "    return accs\nfor epoch in range(3):\n"
        "    line = 'Epoch {}, Train: {:.3f}, Val: {:.3f}'\n"
        "    accs = test()\n    print(line.format(epoch, *accs))\n"
    )
    assert objective(tmp_path, source)[:2] == ("Val", "maximize")


def test_what_a_configuration_lets_callbacks_monitor_is_the_objective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(
        "lr: 0.1\nbatch_size: 8\ncallbacks:\n  stop: {metric: val/mcc, mode: max}\n"
    )
    Path("train.py").write_text(
        "import hydra, pytorch_lightning as pl\n"
        "@hydra.main(config_path='.', config_name='config')\ndef main(cfg):\n"
        "    stop = cfg['callbacks']['stop']\n"
        "    pl.Trainer(callbacks=[pl.callbacks.EarlyStopping(\n"
        "        monitor=cfg['callbacks']['stop']['metric'], mode=stop['mode'])])\n"
        "class Net(pl.LightningModule):\n    def validation_step(self, batch):\n"
        "        self.log('val/loss', 0.5)\n        self.log('val/' + name, cfg.lr)\nmain()\n"
    )
    written = Experiment.from_yaml(experiment_for(Path("train.py")).text).objectives[0]
    assert (written.metric, written.goal) == ("val/mcc", "maximize")


def test_a_package_below_src_is_read_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src/fitting").mkdir(parents=True)
    Path("src/fitting/__init__.py").write_text(
        "def fit(lr):\n    for epoch in range(2):\n        print(f'val_loss: {lr:.4f}')\n"
    )
    Path("train.py").write_text(
        "import argparse\nfrom fitting import fit\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\nfit(p.parse_args().lr)\n"
    )
    experiment = Experiment.from_yaml(experiment_for(Path("train.py")).text)
    assert experiment.objectives[0].metric == "val_loss"
    assert experiment.command == "env PYTHONPATH=src python train.py {args}"


def test_what_is_trained_and_evaluated_by_one_name_is_not_measured_on_validation_data(
    tmp_path: Path,
) -> None:
    source = (
        "import wandb\ndef train(model, rows, other):\n    losses = []\n    for step in range(9):\n"
        "        data = next(rows)\n        output = model(data)\n"
        "        losses.append(output.loss)\n"
        "        bar.set_description(f'loss: {np.mean(losses):.3f}')\n        log = {}\n"
        "        if step % 3 == 0:\n            model.eval()\n            for data in other:\n"
        "                log['eval_total_loss'] = model(data).loss\n            model.train()\n"
        "        wandb.log({**log})\ntrain(model, rows, other)\n"
    )
    assert objective(tmp_path, source)[:2] == ("eval_total_loss", "minimize")
