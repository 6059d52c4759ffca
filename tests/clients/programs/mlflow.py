"""MLflow: a run of `gpt1 finetune` that trains, evaluates and predicts, recorded in a local database."""

from figures import Figure, finetune, report

REQUIREMENTS = ("mlflow==3.17.2", "torch==2.13.0")
IS_FREE = True  # it needs an older pyarrow
METRICS = ("loss", "lm_perplexity", "eval_accuracy")


def main() -> list[Figure]:
    from mlflow import MlflowClient

    database = "sqlite:///mlflow.db"
    finetune("mlflow", MLFLOW_TRACKING_URI=database)
    client = MlflowClient(database)
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    recorded = {name for run in runs for name in run.data.metrics}
    return [
        Figure("runs, one of training and one of the evaluation after it", len(runs), equals=2),
        Figure("metrics of 3 that they have", len(recorded & {*METRICS}), equals=3),
    ]


if __name__ == "__main__":
    report(main)
