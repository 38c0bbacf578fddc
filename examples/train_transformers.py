"""Transformers: train a tiny BERT with 90 % zeros to detect a word in a sequence, and save it for the Hub."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import rvsm
from rvsm.integrations import TransformersCallback

WORD = 7

set_seed(0)
texts = torch.randint(1, 20, (1000, 12))
examples = [{"input_ids": text, "labels": int((text == WORD).any())} for text in texts]

config = BertConfig(
    vocab_size=20,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=12,
)
model = BertForSequenceClassification(config)
args = TrainingArguments(
    "bert",
    num_train_epochs=5,
    learning_rate=3e-3,
    per_device_train_batch_size=32,
    eval_strategy="epoch",
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(
    model,
    args,
    train_dataset=examples[:800],
    eval_dataset=examples[800:],
    compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())},
)
sparsity = TransformersCallback(sparsity=0.9, exclude=["classifier.*"])  # 1
sparsity.add_to(trainer)  # 2
trainer.train()

accuracy = trainer.evaluate()["eval_accuracy"]
rvsm.integrations.save_pretrained(model, "bert-sparse", sparsifier=sparsity.sparsifier, accuracy=accuracy)
print(sparsity.sparsifier.statistics())
