"""Faults found in the tools people fine-tune with today, and which of our tests keeps each of them out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fault_lists import listed, require_tests

# A fault by its number in the list of cases (section 3) or of public bugs and what must hold instead; below it, the tests that
# hold it.
FAULTS = """
1 offsets cut the given text, whatever accents and invisible characters are in it; whole characters
  text/test_aligned.py::test_B054_B055_B070_B172_offsets_cut_whole_characters_out_of_the_given_text
  text/test_aligned.py::test_offsets_are_right_for_any_mixture_of_such_characters
  text/test_aligned.py::test_B160_an_accent_an_emoji_and_a_syllable_are_taken_in_whole
  tasks/test_tag_task.py::test_B160_spans_cut_the_users_own_text
2 a word's pieces make one answer, and no space is part of it
  text/test_aligned.py::test_B054_B055_B070_B172_offsets_cut_whole_characters_out_of_the_given_text
  text/test_aligned.py::test_B156_B157_B161_a_number_is_cut_out_whole_by_its_pieces
  tasks/test_tag_task.py::test_every_word_is_learned_once_and_in_order
  tasks/test_tag_task.py::test_B156_B157_B159_spans_of_words_count_characters_of_the_words_joined_by_spaces
3 a number of many pieces is one entity, and offset 0 is an offset
  text/test_aligned.py::test_B156_B157_B161_a_number_is_cut_out_whole_by_its_pieces
  tasks/test_tag_task.py::test_B156_B157_B159_spans_of_words_count_characters_of_the_words_joined_by_spaces
  tasks/test_tag_task.py::test_an_entity_across_windows_is_found_once
4 long records are read in windows that overlap; an entity across their border is found once
  text/test_aligned_words.py::test_windows_hold_whole_words_and_all_of_them
  tasks/test_tag_task.py::test_an_entity_across_windows_is_found_once
  tasks/test_tag_task.py::test_with_a_crf_no_record_breaks_the_scheme_nor_at_the_borders_of_windows
5 words that vanish in the tokenizer keep their slot and get a tag
  text/test_aligned_words.py::test_B056_B071_B072_B074_B075_every_word_has_one_place_even_if_it_has_no_piece
  tasks/test_tag_task.py::test_B071_words_of_nothing_keep_their_slot
  labelled/test_read_tagged.py::test_words_may_be_any_white_space_but_blank_and_tab
6 spans count characters, never tokens
  labelled/test_char_spans.py::test_the_words_of_a_span_are_the_text_of_the_span
  text/test_aligned.py::test_B156_B157_B161_a_number_is_cut_out_whole_by_its_pieces
7 a zero-width space is a word like others
  text/test_aligned_words.py::test_B056_B071_B072_B074_B075_every_word_has_one_place_even_if_it_has_no_piece
  tasks/test_tag_task.py::test_B071_words_of_nothing_keep_their_slot
8 the limit is the model's own, and nothing is too long
  tasks/test_task_faults.py::test_the_model_s_own_length_is_the_limit_whatever_its_tokenizer_says
  hub/test_sentence_layout.py::test_length_lower_case_prompts_and_normalising
  text/test_aligned_words.py::test_windows_hold_whole_words_and_all_of_them
9 a CRF takes any mask, and equals brute force
  objectives/test_tag.py::test_B162_B163_words_without_a_tag_are_not_in_the_path_whatever_their_places
  nn/test_crf.py::test_everything_equals_brute_force
  nn/test_crf.py::test_the_likelihood_and_every_gradient_equal_brute_force
10 transitions lead from word to word
  nn/test_crf.py::test_B165_transitions_lead_from_word_to_word_of_one_sequence
11 strict and lenient scores are both told, by name; illegal tags are counted; no entity is no accident
  measure/test_span_metrics.py::test_both_modes_agree_with_seqeval
  measure/test_span_metrics.py::test_other_letters_make_the_spans_that_those_of_bioes_make
  tasks/test_tag_folders.py::test_a_folder_of_others_makes_the_spans_of_its_labels
  measure/test_span_metrics.py::test_B150_strict_and_lenient_are_named_and_differ_where_a_span_begins_with_I
  measure/test_span_metrics.py::test_no_spans_at_all_is_a_defined_score_that_is_said
  measure/test_span_metrics.py::test_illegal_tags_are_counted_where_they_stand
  measure/test_span_metrics.py::test_a_tag_that_is_none_of_the_scheme_is_refused_by_name
  tasks/test_tag_task.py::test_B150_the_first_score_is_strict_and_the_lenient_one_stands_beside_it
12 a broken entity begins where it is, is dropped or refused, as asked; all are counted, and eval.json says which
  labelled/test_tag_schemes.py::test_a_broken_entity_begins_where_it_is_or_becomes_o
  labelled/test_tag_schemes.py::test_a_broken_entity_is_refused_by_its_place
  tasks/test_tag_folders.py::test_broken_tags_are_read_as_the_run_or_whoever_measures_wants
  tasks/test_tag_folders.py::test_chinese_words_are_learned_from_letters_alone_and_found_in_running_text
  labelled/test_read_tagged.py::test_broken_entities_are_counted_with_the_line_of_the_first
13 texts that are too long are cut or read in windows, with a warning that counts them
  tasks/test_task_faults.py::test_the_model_s_own_length_is_the_limit_whatever_its_tokenizer_says
  text/test_aligned.py::test_truncation_takes_from_the_longer_text_and_counts_each_sequence_once
  cli/test_finetune.py::test_predictions_come_in_the_file_s_order_and_need_no_labels
14 nothing is cut in silence
  inference/test_loaded.py::test_what_is_cut_is_told_with_its_number
  text/test_aligned.py::test_truncation_takes_from_the_longer_text_and_counts_each_sequence_once
  tasks/test_tag_task.py::test_a_word_longer_than_a_window_is_counted
15 no answer depends on its batch
  inference/test_loaded.py::test_order_and_batch_mates_change_nothing
  inference/test_loaded.py::test_bf16_is_near_fp32_or_refused_in_words
  objectives/test_contrast.py::test_vectors_have_length_1_and_do_not_depend_on_their_batch
  objectives/test_rank.py::test_scores_do_not_depend_on_the_batch
  objectives/test_classify.py::test_an_answer_does_not_depend_on_batch_mates_nor_on_reading_few_tokens
  tasks/test_task_faults.py::test_no_answer_depends_on_its_batch_and_texts_of_nothing_are_alike
  tasks/test_tag_task.py::test_an_answer_depends_on_its_record_alone
  tasks/test_answer_models.py::test_an_answer_does_not_depend_on_what_is_asked_beside_it
16 any number of texts needs the memory of a few (a server: not built yet)
  inference/test_loaded.py::test_a_stream_of_any_length_needs_the_same_memory
17 the command line is there at once
  cli/test_commands.py::test_help_imports_nothing_heavy
  cli/test_commands.py::test_help_comes_at_once
18 raw scores and probabilities are both named; the folder says which it gives; thresholds lie beside
  tasks/test_rank_task.py::test_texts_come_back_best_first_with_raw_scores_and_probabilities
  tasks/test_ranked_runs.py::test_a_cross_encoder_s_folder_gives_their_scores
  hub/test_task_settings.py::test_what_a_cross_encoder_puts_around_its_output_is_written_and_read
  tasks/test_task_faults.py::test_several_labels_go_from_lists_to_thresholds_and_back
19 accumulation adds no negatives, which is said; chunks give the gradient of the whole batch
  objectives/test_contrast.py::test_parts_of_an_accumulated_step_share_no_negatives_but_chunks_do
  objectives/test_contrast.py::test_chunks_give_loss_and_gradient_of_the_whole_batch
  tasks/test_task_faults.py::test_who_adds_up_gradients_is_told_that_this_adds_no_negatives
20 equal texts are never each other's negatives
  objectives/test_contrast.py::test_a_passage_that_several_queries_share_is_no_negative_of_theirs
  objectives/test_contrast.py::test_an_answer_that_another_record_knows_is_no_negative
  objectives/test_contrast.py::test_the_query_itself_is_no_negative
21 no known answer is mined, by its id or its text
  tasks/test_contrast_task.py::test_no_answer_is_ever_mined_by_its_id_its_text_or_its_twin
  tasks/test_contrast_task.py::test_a_negative_that_is_known_to_answer_is_left_out
  tasks/test_contrast_task.py::test_mining_keeps_its_promises
  labelled/test_read_ranked.py::test_a_positive_is_never_a_negative_of_its_query
22 the pooling is in the folder, and is not guessed
  hub/test_sentence_folders.py::test_their_library_makes_the_same_vectors
  hub/test_sentence_folders.py::test_what_a_task_was_trained_with_is_what_the_folder_says
  tasks/test_finetune_run.py::test_a_folder_that_pools_otherwise_is_not_begun_anew_without_a_word
23 the n best answers are n
  tasks/test_answer_task.py::test_the_n_best_are_as_many_as_asked_for_though_pieces_of_text_come_up_twice
  tasks/test_answer_task.py::test_decoding_is_a_double_loop
24 any stride and any length of question is worked with, and what was shortened is counted
  text/test_aligned_windows.py::test_B167_a_stride_of_the_whole_room_is_shortened_and_counted
  text/test_aligned_windows.py::test_B168_B169_a_long_question_is_cut_and_leaves_the_context_half_the_window
  text/test_aligned_windows.py::test_B167_windows_are_those_of_the_plain_definition
25 the threshold for no answer is tuned and kept
  tasks/test_answer_task.py::test_the_tuned_threshold_is_better_than_any_other
  tasks/test_task_faults.py::test_the_threshold_for_no_answer_is_tuned_kept_and_used_again
  measure/test_squad_metrics.py::test_the_threshold_found_reaches_the_score_it_promises
26 an answer at the edge of its context is one; a context of nothing is no accident
  tasks/test_task_faults.py::test_an_answer_at_an_edge_of_its_context_is_an_answer_where_none_is_allowed_too
  tasks/test_answer_task.py::test_B167_every_token_of_a_long_context_can_be_the_answer
  tasks/test_answer_task.py::test_B168_a_context_without_a_word_is_no_accident
27 offsets are half-open, in code points
  text/test_aligned.py::test_B160_an_accent_an_emoji_and_a_syllable_are_taken_in_whole
  tasks/test_answer_task.py::test_B172_labels_are_the_tokens_that_share_a_character_with_the_answer
  tasks/test_tag_task.py::test_B160_spans_cut_the_users_own_text
  labelled/test_read_questions.py::test_every_answer_read_is_the_text_at_its_start
28 contexts of all lengths go together, long ones second too
  tasks/test_answer_models.py::test_an_answer_does_not_depend_on_what_is_asked_beside_it
  tasks/test_answer_task.py::test_a_context_in_windows_has_the_answers_of_one_that_fits
29 each mask of a text is filled on its own, with no special token (jointly for several masks: not built yet)
  measure/test_heldout.py::test_fill_mask_ranks_what_the_head_prefers
  cli/test_commands.py::test_fill_guesses_each_mask
30 repeated emoji stand where they are, known or not
  text/test_aligned.py::test_repeated_emoji_stand_where_they_are_known_or_not
  tasks/test_answer_task.py::test_the_n_best_are_as_many_as_asked_for_though_pieces_of_text_come_up_twice
31 several labels at once: targets of the right type, the kind of problem written down, none a legal answer
  tasks/test_task_faults.py::test_several_labels_go_from_lists_to_thresholds_and_back
  hub/test_task_settings.py::test_several_labels_at_once_are_told_apart_from_one_of_several
  objectives/test_classify.py::test_several_labels_are_a_yes_or_no_each_and_none_is_allowed
  labelled/test_read_texts.py::test_several_labels_are_a_list_and_may_be_none
  measure/test_classification_metrics.py::test_an_empty_set_of_labels_is_a_legal_answer
32 the labels are the model's, sorted when it was made; others are an error that lists both
  tasks/test_task_faults.py::test_labels_stay_frozen_when_a_file_has_others_fewer_or_another_order
  tasks/test_finetune_run.py::test_a_folder_whose_two_lists_of_labels_contradict_is_refused
  tasks/test_finetune_run.py::test_labels_that_can_t_be_learned_are_refused_by_name
  labelled/test_label_sets.py::test_unseen_labels_are_listed_each_with_its_first_place
  hub/test_task_settings.py::test_labels_keep_their_order_and_every_character
33 an empty text has a vector and an answer, as one of spaces has
  tasks/test_task_faults.py::test_no_answer_depends_on_its_batch_and_texts_of_nothing_are_alike
  text/test_aligned.py::test_texts_of_nothing_give_the_frame_alone
  inference/test_loaded.py::test_order_and_batch_mates_change_nothing
  inference/test_loaded.py::test_no_text_gives_no_vector
34 NaN is never an answer
  inference/test_loaded.py::test_weights_that_are_nan_are_refused_when_loading_and_answers_when_given
  measure/test_ranking_metrics.py::test_a_score_that_is_no_number_is_refused_by_name
37 the device is the one asked for
  inference/test_loaded.py::test_an_unknown_device_is_not_the_cpu
  inference/test_loaded.py::test_a_graph_is_not_said_to_be_on_cuda
39 a graph answers as the model does, or is refused; int8 too
  inference/test_onnx_backend.py::test_vectors_are_those_of_torch
  hub/test_onnx.py::test_heads_over_pairs_answer_alike
  hub/test_onnx.py::test_int8_keeps_vectors_or_is_refused
40 half a surrogate, an empty cell, None: an error with its place; special tokens spelled in a text are text
  text/test_aligned.py::test_a_text_that_is_no_text_is_an_error_that_shows_it
  text/test_aligned.py::test_special_tokens_spelled_in_a_text_are_ordinary_text
  tasks/test_task_faults.py::test_no_answer_depends_on_its_batch_and_texts_of_nothing_are_alike
  labelled/test_label_rows.py::test_what_cannot_be_read_is_one_clear_error
  labelled/test_read_texts.py::test_a_label_that_is_none_names_file_line_and_record
  labelled/test_read_texts.py::test_B007_an_empty_text_is_kept_and_counted_with_its_line
B007 words that look like missing values are words
  labelled/test_label_rows.py::test_B007_words_that_look_like_missing_values_are_words
  labelled/test_read_texts.py::test_an_empty_cell_is_no_label_but_null_and_nan_are_words
  labelled/test_read_texts.py::test_B007_an_empty_text_is_kept_and_counted_with_its_line
B010 scores written as strings are numbers, and never classes
  labelled/test_read_texts.py::test_B010_B143_scores_written_as_strings_are_numbers
  labelled/test_label_sets.py::test_B010_measured_numbers_are_not_taken_for_classes
B011 columns are read however they are written, and a broken line is named
  labelled/test_read_tagged.py::test_B011_columns_are_read_however_they_are_written
  labelled/test_read_tagged.py::test_B011_a_broken_line_is_named
B071 a zero-width word gets its tag
  tasks/test_tag_task.py::test_B071_words_of_nothing_keep_their_slot
B072 a word without pieces gets its tag
  text/test_aligned_words.py::test_B056_B071_B072_B074_B075_every_word_has_one_place_even_if_it_has_no_piece
  tasks/test_tag_task.py::test_B071_words_of_nothing_keep_their_slot
B075 a text of a byte order mark alone is a text
  text/test_aligned_words.py::test_B056_B071_B072_B074_B075_every_word_has_one_place_even_if_it_has_no_piece
  text/test_aligned.py::test_texts_of_nothing_give_the_frame_alone
B119 seven classes stay seven
  hub/test_task_settings.py::test_seven_classes_stay_seven_classes
  hub/test_task_heads.py::test_transformers_opens_our_folder_as_the_task_s_class_and_gives_our_logits
B143 a column of scores is learned as numbers, without a label map
  tasks/test_task_faults.py::test_B143_B147_B148_a_number_from_a_csv_is_learned_kept_and_told_as_a_number
  objectives/test_classify.py::test_a_number_is_learned_by_squared_error
  hub/test_task_settings.py::test_one_number_for_a_sequence_is_a_class_for_sequences_with_one_label
B144 the model's own map is used, head and all, or a person's new one, which is told
  tasks/test_task_faults.py::test_B144_a_model_s_own_labels_are_used_whichever_way_round_they_are
  hub/test_task_heads.py::test_a_head_for_the_very_same_labels_is_taken_over_and_another_is_not
  tasks/test_tag_folders.py::test_a_head_for_the_same_labels_goes_on_in_its_own_order
B145 names of labels come back
  tasks/test_task_faults.py::test_B145_names_come_back_whatever_library_reads_the_folder
  tasks/test_finetune_run.py::test_a_toy_task_is_learned_and_the_folder_answers_as_the_run_did
B146 the order of labels is always the same
  labelled/test_label_sets.py::test_B146_the_order_of_labels_does_not_depend_on_the_order_of_records
  labelled/test_label_sets.py::test_numbers_are_sorted_by_value_and_words_by_letters
B147 a model of numbers answers with numbers
  tasks/test_task_faults.py::test_B143_B147_B148_a_number_from_a_csv_is_learned_kept_and_told_as_a_number
B148 a saved model of numbers answers with numbers, under the name of what they measure
  tasks/test_task_faults.py::test_B143_B147_B148_a_number_from_a_csv_is_learned_kept_and_told_as_a_number
  tasks/test_task_faults.py::test_B148_a_number_keeps_its_name_whoever_gave_it
B150 the score is strict, the lenient one stands beside it
  measure/test_span_metrics.py::test_B150_strict_and_lenient_are_named_and_differ_where_a_span_begins_with_I
  tasks/test_tag_task.py::test_B150_the_first_score_is_strict_and_the_lenient_one_stands_beside_it
B152 malformed true tags are told, and no type vanishes
  measure/test_span_metrics.py::test_B152_a_malformed_true_tag_is_reported_with_its_place_and_its_type_does_not_vanish
B155 spans of one word are counted one by one
  measure/test_span_metrics.py::test_B155_single_word_spans_side_by_side_are_counted_one_by_one
B156 a span holds whole words
  text/test_aligned.py::test_B156_B157_B161_a_number_is_cut_out_whole_by_its_pieces
  tasks/test_tag_task.py::test_B156_B157_B159_spans_of_words_count_characters_of_the_words_joined_by_spaces
B157 a number of four pieces is one entity
  text/test_aligned.py::test_B156_B157_B161_a_number_is_cut_out_whole_by_its_pieces
  tasks/test_tag_task.py::test_B156_B157_B159_spans_of_words_count_characters_of_the_words_joined_by_spaces
B158 words are parted in training as when they are asked (but for given words that hold a mark, or several Chinese characters)
  tasks/test_task_faults.py::test_B158_a_text_has_the_words_in_training_that_it_has_when_it_is_asked
  labelled/test_char_spans.py::test_a_text_is_parted_as_those_before_it
  tasks/test_tag_folders.py::test_chinese_words_are_learned_from_letters_alone_and_found_in_running_text
  tasks/test_tag_folders.py::test_words_of_a_segmenter_are_missed_where_a_text_has_none
  tasks/test_tag_task.py::test_B156_B157_B159_spans_of_words_count_characters_of_the_words_joined_by_spaces
B159 offsets of given words are those of a stated text
  tasks/test_tag_task.py::test_B156_B157_B159_spans_of_words_count_characters_of_the_words_joined_by_spaces
B160 offsets behind emoji count code points
  tasks/test_tag_task.py::test_B160_spans_cut_the_users_own_text
  text/test_aligned.py::test_B160_an_accent_an_emoji_and_a_syllable_are_taken_in_whole
B161 a span that ends inside a word is no accident
  labelled/test_char_spans.py::test_a_span_that_cuts_a_word_parts_it
  text/test_aligned.py::test_B156_B157_B161_a_number_is_cut_out_whole_by_its_pieces
B162 a first token without a tag is no accident for a CRF
  objectives/test_tag.py::test_B162_B163_words_without_a_tag_are_not_in_the_path_whatever_their_places
B163 nor are unlabelled ones anywhere
  objectives/test_tag.py::test_B162_B163_words_without_a_tag_are_not_in_the_path_whatever_their_places
B165 a CRF sees words, not pieces
  nn/test_crf.py::test_B165_transitions_lead_from_word_to_word_of_one_sequence
B167 every token of a context is in a window
  text/test_aligned_windows.py::test_B167_windows_are_those_of_the_plain_definition
  text/test_aligned_windows.py::test_B167_a_stride_of_the_whole_room_is_shortened_and_counted
  tasks/test_answer_task.py::test_B167_every_token_of_a_long_context_can_be_the_answer
B168 without any candidate there is no answer, with a score
  tasks/test_answer_task.py::test_B168_a_context_without_a_word_is_no_accident
  text/test_aligned_windows.py::test_B168_B169_a_long_question_is_cut_and_leaves_the_context_half_the_window
B169 a long question is cut first, and leaves the context half the window
  text/test_aligned_windows.py::test_B168_B169_a_long_question_is_cut_and_leaves_the_context_half_the_window
B172 carriage returns are characters
  labelled/test_read_questions.py::test_B172_carriage_returns_count_as_the_characters_they_are
  tasks/test_answer_task.py::test_B172_labels_are_the_tokens_that_share_a_character_with_the_answer
B173 offsets in bytes are put right where that is sure
  labelled/test_read_questions.py::test_B173_offsets_in_bytes_are_put_right_where_that_is_sure
B174 an answer that is elsewhere is moved where it is there once, and counted; or refused
  labelled/test_read_questions.py::test_B174_an_answer_that_is_elsewhere_once_is_moved_and_counted
  labelled/test_read_questions.py::test_an_answer_that_cannot_be_placed_names_file_line_record_and_question
B177 vectors do not depend on the size of the batch
  objectives/test_contrast.py::test_vectors_have_length_1_and_do_not_depend_on_their_batch
  inference/test_loaded.py::test_order_and_batch_mates_change_nothing
B179 a passage that several queries share is no negative of theirs
  objectives/test_contrast.py::test_a_passage_that_several_queries_share_is_no_negative_of_theirs
  objectives/test_contrast.py::test_the_loss_is_the_formula_written_out
B181 a listwise loss is made of raw scores
  objectives/test_rank.py::test_a_listwise_loss_is_made_of_raw_scores
B182 raw scores and probabilities are both named
  tasks/test_rank_task.py::test_texts_come_back_best_first_with_raw_scores_and_probabilities
B184 the label that ranks has to be named
  tasks/test_rank_task.py::test_of_more_than_two_labels_the_one_that_counts_has_to_be_named
B185 high scores keep their order
  tasks/test_rank_task.py::test_high_scores_keep_their_order_as_probabilities
B186 of two labels the second counts
  tasks/test_rank_task.py::test_of_two_labels_the_second_counts_unless_another_is_named
B187 a vector has length 1 however long its text is
  tasks/test_task_faults.py::test_B187_a_vector_has_length_1_however_long_its_text_is
  objectives/test_contrast.py::test_vectors_have_length_1_and_do_not_depend_on_their_batch
B188 the last token is the one that the model was trained with
  hub/test_sentence_folders.py::test_their_library_makes_the_same_vectors
  nn/test_pooling.py::test_all_modes_equal_sentence_transformers
B189 queries and documents get the prompts of the folder
  tasks/test_retrieval_task.py::test_each_role_gets_the_prompt_that_the_folder_has_for_it
  tasks/test_contrast_task.py::test_queries_and_documents_have_prompts_of_their_own
  inference/test_loaded.py::test_prompts_and_length_and_pooling_are_the_folder_s_own
"""
SERVING = {"35", "36", "38"}  # of a server alone
AREAS = ("finetune/", "ner/", "crf/", "qa/", "retrieval/", "rerank/", "tokenizer/invisible", "export/labels")
FILES = ("corpora/csv", "corpora/labels", "corpora/ner")  # of labelled records

TESTS_OF = listed(FAULTS)


@pytest.mark.parametrize("fault", TESTS_OF)
def test_every_fault_of_a_task_has_tests_that_are_there(fault: str) -> None:
    require_tests(TESTS_OF[fault])


def test_every_case_about_tasks_is_named(shared: Path) -> None:
    section = (shared / "cases" / "TASKS.md").read_text(encoding="utf-8").split("## 3.")[1]
    cases = re.findall(r"^(\d+)\. ", section, re.MULTILINE)
    assert len(cases) == 40 and [key for key in TESTS_OF if key.isdigit()] == [c for c in cases if c not in SERVING]


def test_every_public_bug_about_tasks_is_named(shared: Path) -> None:
    rows = (shared / "cases" / "public_bugs.jsonl").read_text(encoding="utf-8").splitlines()
    bugs = [bug["id"] for bug in map(json.loads, rows) if bug["area"].startswith((*AREAS, *FILES))]
    assert bugs == [key for key in TESTS_OF if not key.isdigit()]
