"""The families we read and write, in the order in which a class is looked for."""

from __future__ import annotations

from unmask.hub.families.albert import ALBERT
from unmask.hub.families.bert import BERT
from unmask.hub.families.deberta import DEBERTA, DEBERTA_V2
from unmask.hub.families.electra import ELECTRA
from unmask.hub.families.gpt2 import GPT2
from unmask.hub.families.modernbert import MODERNBERT
from unmask.hub.families.neobert import NEOBERT
from unmask.hub.families.own import OWN
from unmask.hub.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from unmask.hub.families.t5 import T5

FAMILIES = {
    family.model_type: family
    for family in (
        BERT, ROBERTA, CAMEMBERT, XLM_ROBERTA, ELECTRA, ALBERT, DEBERTA, DEBERTA_V2, MODERNBERT, GPT2, T5, NEOBERT, OWN,
    )
}  # fmt: skip
